/** CLIP: learns which captions and images of a batch belong together. */
import { CheckpointError } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { captionedPixels, type CaptionedImage } from '../../data/captioned.js';
import type { SampleSource } from '../../data/types.js';
import { Graph } from '../../compute/graph/ir.js';
import { CONFIG_FILE, TOKENIZER_FILE } from '../../models/files.js';
import { clipInputs, embedImages, embedTexts, initClip } from '../../compute/nets/clip/clip.js';
import { CLIP_EPS, clipConfigJson, type ClipConfig } from '../../compute/nets/clip/config.js';
import { contrastiveLoss, clampLogitScale } from '../../compute/nets/clip/loss.js';
import { clipTokenizerJson } from '../../rewards/terms/clip/byte_pairs.js';
import { firstFile } from '../../rewards/terms/clip/files.js';
import { preprocess, type Preprocessing } from '../../rewards/terms/clip/preprocess.js';
import { ClipTokenizer } from '../../rewards/terms/clip/tokenizer.js';
import type { ClipInit } from '../../config/schema/model.js';
import { meanOf, repeatedRows, scalar, type Network } from './pretraining.js';

/** Pixels are cached up to this many bytes, so that small datasets are decoded once. */
const KEPT_BYTES = 2 ** 28;
/** Maps pixels to the range from -1 to 1. */
const CENTER = [0.5, 0.5, 0.5];

/**
 * Results on a batch of held-out pairs. `accuracy` is the share of images that are nearest to their own caption within
 * the batch.
 */
interface Measured {
  readonly contrast: number;
  readonly matched: number;
  readonly accuracy: number;
}

/**
 * The network for batches of `size` pairs.
 * Its tokenizer is learned from the captions, or read from `checkpoint` if that is not null. `matchedCosine` is the
 * target of the mean cosine of matching pairs, or null. Raises DataError for a row without a caption.
 */
export function clipNetwork(
  {
    seed,
    init,
    matchedCosine,
    size,
    checkpoint,
  }: {
    readonly seed: number;
    readonly init: ClipInit;
    readonly matchedCosine: number | null;
    readonly size: number;
    readonly checkpoint: string | null;
  },
  train: readonly SampleSource<CaptionedImage>[],
): Network<CaptionedImage, Measured> {
  const captions = train.flatMap((source) => Array.from({ length: source.length }, (_, i) => source.read(i).text));
  const tokenizerJson =
    checkpoint === null
      ? clipTokenizerJson(captions, init.text_config.merges)
      : readTextFile(firstFile([join(checkpoint, TOKENIZER_FILE)], TOKENIZER_FILE, checkpoint), CheckpointError);
  const tokenizer = ClipTokenizer.parse(tokenizerJson, init.text_config.max_position_embeddings, TOKENIZER_FILE);
  const config = configOf(init, tokenizer);
  const graph = new Graph('clip');
  const { ids, pixels } = clipInputs(graph, config, size);
  const { loss, ...outputs } = contrastiveLoss(embedImages(config, pixels), embedTexts(config, ids), matchedCosine);
  const weights = initClip(config, init.logit_scale, seed);
  clampLogitScale(weights);

  const side = config.vision.image_size;
  const steps: Preprocessing = {
    resize: { shortestEdge: side },
    filter: 'cubic',
    crop: { width: side, height: side },
    scale: 1 / 255,
    normalize: { mean: CENTER, std: CENTER },
  };
  const kept = new LRUCache<string, Float32Array>({ maxSize: KEPT_BYTES });
  const pixelsOf = async (sample: CaptionedImage): Promise<Float32Array> => {
    const known = kept.get(sample.path);
    if (known !== undefined) return known;
    const found = preprocess(await captionedPixels(sample), steps);
    kept.set(sample.path, found, { size: found.byteLength });
    return found;
  };

  return {
    loss,
    outputs,
    weights,
    feeds: async (samples) => {
      const { context } = tokenizer;
      const images = await Promise.all(samples.map(pixelsOf));
      const input_ids = new BigInt64Array(size * context);
      const texts = await Promise.all(samples.map(({ text }) => tokenizer.encode(text)));
      for (let i = 0; i < size; i++) input_ids.set(texts[i % samples.length].ids, i * context);
      return { input_ids, pixel_values: repeatedRows(images, size) };
    },
    afterStep: (_iteration, out) => {
      clampLogitScale(weights);
      return {
        'policy/accuracy': accuracy(out['cosines'] as Float32Array, size),
        'policy/matched_cosine': scalar(out, 'matched'),
      };
    },
    measure: (out) => ({
      contrast: scalar(out, 'contrast'),
      matched: scalar(out, 'matched'),
      accuracy: accuracy(out['cosines'] as Float32Array, size),
    }),
    evaluationMetrics: (batches) => ({
      'validation/loss': meanOf(batches, ({ contrast }) => contrast),
      'validation/accuracy': meanOf(batches, (one) => one.accuracy),
      'validation/matched_cosine': meanOf(batches, ({ matched }) => matched),
    }),
    stoppingLossName: 'loss',
    // Together with the weights, a folder for the reward term `clip`.
    files: () => {
      const preprocessor = {
        image_processor_type: 'CLIPImageProcessor',
        do_resize: true,
        size: { shortest_edge: side },
        resample: 3,
        do_center_crop: true,
        crop_size: { width: side, height: side },
        do_rescale: true,
        rescale_factor: 1 / 255,
        do_normalize: true,
        image_mean: CENTER,
        image_std: CENTER,
      };
      return {
        [CONFIG_FILE]: clipConfigJson(config),
        'preprocessor_config.json': `${JSON.stringify(preprocessor, null, 2)}\n`,
        [TOKENIZER_FILE]: tokenizerJson,
      };
    },
  };
}

function configOf({ projection_dim, text_config, vision_config }: ClipInit, tokenizer: ClipTokenizer): ClipConfig {
  const { start, end } = tokenizer.marks;
  const layers = { hidden_act: 'gelu_pytorch_tanh', layer_norm_eps: CLIP_EPS } as const;
  return {
    projection_dim,
    text: {
      ...layers,
      hidden_size: text_config.hidden_size,
      intermediate_size: text_config.intermediate_size,
      num_hidden_layers: text_config.num_hidden_layers,
      num_attention_heads: text_config.num_attention_heads,
      max_position_embeddings: text_config.max_position_embeddings,
      vocab_size: tokenizer.size,
      bos_token_id: start,
      eos_token_id: end,
    },
    vision: { ...layers, ...vision_config },
  };
}

/** The share of rows whose largest entry is on the diagonal. */
function accuracy(cosines: Float32Array, size: number): number {
  let right = 0;
  for (let row = 0; row < size; row++) {
    const own = cosines.subarray(row * size, (row + 1) * size);
    if (own.every((one) => one <= own[row])) right += 1;
  }
  return right / size;
}
