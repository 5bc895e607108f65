/** Training of CLIP: of a batch of captions and pictures, to tell which belong together. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { captionedPixels, type CaptionedPicture } from '../data/captioned.js';
import { createSampler, type Sampler } from '../data/sampler.js';
import type { SampleSource } from '../data/types.js';
import { learningRateAt, type ScheduleOptions } from '../engines/onnx/optimizer.js';
import { Session, type SessionOptions, type TensorData } from '../engines/onnx/session.js';
import { TrainedWeights } from '../engines/onnx/trained_weights.js';
import { gradients } from '../graph/differentiate.js';
import { Graph, type Value } from '../graph/ir.js';
import { toOnnx } from '../graph/onnx.js';
import { CONFIG_FILE, TOKENIZER_FILE, type CheckpointFiles } from '../models/files.js';
import { clipInputs, embedPictures, embedTexts, initClip } from '../nets/clip/clip.js';
import { clipConfigJson, type ClipConfig } from '../nets/clip/config.js';
import { contrastiveLoss, holdLogitScale } from '../nets/clip/loss.js';
import { GRADIENT } from '../policies/backward.js';
import { clipTokenizerJson } from '../rewards/terms/clip/byte_pairs.js';
import { firstFile } from '../rewards/terms/clip/files.js';
import { preprocess, type Preprocessing } from '../rewards/terms/clip/preprocess.js';
import { ClipTokenizer } from '../rewards/terms/clip/tokenizer.js';
import type { Metrics } from '../run/metrics.js';
import type { SftSettings } from '../schema/algorithm.js';
import type { ClipInit } from '../schema/model.js';
import type { OptimizerSettings, ValidationSettings } from '../schema/training.js';
import { EarlyStopping } from './early_stopping.js';
import type { Training } from './loop.js';
import { readTrainerState, trainerFile } from './trainer_state.js';

export interface ContrastiveDeps {
  readonly seed: number;
  readonly init: ClipInit;
  readonly optimizer: OptimizerSettings;
  readonly schedule: ScheduleOptions;
  /** What the mean cosine of those that belong together is held to; null for nothing. */
  readonly matchedCosine: number | null;
  readonly sft: Pick<SftSettings['sft'], 'batch_size' | 'patience' | 'min_delta'>;
  readonly data: {
    readonly train: readonly SampleSource<CaptionedPicture>[];
    /** How often the samples of each of `train` are seen; none: all as often as the largest. */
    readonly coefficients: readonly number[];
    readonly validation: readonly SampleSource<CaptionedPicture>[];
  };
  readonly validation: Pick<ValidationSettings, 'prompts'>;
  readonly session: SessionOptions;
  /** The folder of the checkpoint that `restore` will be given, which has the tokenizer; null for a run that begins. */
  readonly checkpoint: string | null;
}

/** Pixels are kept up to so many bytes: small datasets are decoded once. */
const KEPT_BYTES = 2 ** 28;
/** Pixels are fed from -1 to 1. */
const CENTRE = [0.5, 0.5, 0.5];

export class ContrastiveTraining implements Training {
  readonly #stopping: EarlyStopping;
  readonly #sampler: Sampler;
  readonly #steps: Preprocessing;
  readonly #pixels = new LRUCache<string, Float32Array>({ maxSize: KEPT_BYTES });

  private constructor(
    private readonly deps: ContrastiveDeps,
    private readonly config: ClipConfig,
    private readonly tokenizer: ClipTokenizer,
    private readonly tokenizerJson: string,
    private readonly trained: TrainedWeights,
    private readonly session: Session,
  ) {
    const side = config.vision.image_size;
    const square = { width: side, height: side };
    this.#steps = {
      resize: { shortestEdge: side },
      crop: square,
      scale: 1 / 255,
      normalise: { mean: CENTRE, std: CENTRE },
    };
    this.#stopping = new EarlyStopping(deps.sft);
    this.#sampler = createSampler(deps.data.train, { seed: deps.seed, coefficients: deps.data.coefficients });
  }

  async restore(checkpoint: string): Promise<void> {
    const state = readTrainerState(checkpoint);
    this.#stopping.restore(state);
    this.trained.restore(checkpoint, state.optimizer_steps);
  }

  /** Learns the tokenizer from the captions, or reads that of the checkpoint, and compiles the step. Raises DataError for a row without a caption. */
  static async open(deps: ContrastiveDeps): Promise<ContrastiveTraining> {
    const { init, optimizer, seed, sft, session, matchedCosine, data } = deps;
    const captions = data.train.flatMap((source) =>
      Array.from({ length: source.length }, (_, i) => source.read(i).text),
    );
    const tokenizerJson =
      deps.checkpoint === null
        ? clipTokenizerJson(captions, init.text_config.merges)
        : readFileSync(firstFile([join(deps.checkpoint, TOKENIZER_FILE)], TOKENIZER_FILE, deps.checkpoint), 'utf8');
    const { max_position_embeddings: context } = init.text_config;
    const tokenizer = ClipTokenizer.parse(tokenizerJson, context, TOKENIZER_FILE);
    const config = configOf(init, tokenizer);
    const graph = new Graph('clip');
    const { ids, pixels } = clipInputs(graph, config, sft.batch_size);
    const found = contrastiveLoss(embedPictures(config, pixels), embedTexts(config, ids), matchedCosine);
    const trained = [...graph.parameters];
    const slopes = gradients(
      found.loss,
      trained.map(([, value]) => value),
    );
    const outputs: Record<string, Value> = { ...found };
    trained.forEach(([name], i) => (outputs[`${GRADIENT}${name}`] = slopes[i]));
    const weights = initClip(config, init.logit_scale, seed);
    holdLogitScale(weights);
    return new ContrastiveTraining(
      deps,
      config,
      tokenizer,
      tokenizerJson,
      new TrainedWeights(weights, optimizer),
      await Session.compile(graph, outputs, session),
    );
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const { sft, data, schedule } = this.deps;
    const size = sft.batch_size;
    const batch = Array.from({ length: size }, (_, i) => {
      const { source, index } = this.#sampler.at((iteration - 1) * size + i);
      return data.train[source].read(index);
    });
    const out = await this.#run(batch);
    const gradient = new Map(
      Object.entries(out).flatMap(([name, value]) =>
        name.startsWith(GRADIENT) ? [[name.slice(GRADIENT.length), value as Float32Array] as const] : [],
      ),
    );
    const learningRate = learningRateAt(this.trained.steps, schedule);
    const { gradNorm } = this.trained.step(gradient, learningRate);
    holdLogitScale(this.trained.weights);
    return {
      'policy/loss': scalar(out, 'loss'),
      'policy/grad_norm': gradNorm,
      'policy/learning_rate': learningRate,
      'policy/accuracy': accuracy(out['cosines'] as Float32Array, size),
      'policy/matched_cosine': scalar(out, 'matched'),
      'time/total': (performance.now() - start) / 1000,
    };
  }

  /** The loss of held-out batches, and how often a picture is nearest to its own caption among those of its batch. */
  async evaluate(iteration: number): Promise<Metrics> {
    const { sft, data, validation } = this.deps;
    const size = sft.batch_size;
    const samples = data.validation.flatMap((source) => {
      const count = Math.min(source.length, Math.max(size, validation.prompts));
      return Array.from({ length: count }, (_, index) => source.read(index));
    });
    // Without held-out data there is nothing to measure.
    if (samples.length === 0) return {};
    let [loss, right, matched, batches] = [0, 0, 0, 0];
    // Whole batches alone: what a picture is told from counts. A set smaller than a batch is one that repeats.
    for (let start = 0; start === 0 || start + size <= samples.length; start += size) {
      const out = await this.#run(samples.slice(start, start + size));
      loss += scalar(out, 'contrast');
      matched += scalar(out, 'matched');
      right += accuracy(out['cosines'] as Float32Array, size);
      batches += 1;
    }
    if (iteration > 0) this.#stopping.note(iteration, loss / batches);
    return {
      'validation/loss': loss / batches,
      'validation/accuracy': right / batches,
      'validation/matched_cosine': matched / batches,
    };
  }

  shouldStop(): string | null {
    const flat = this.#stopping.exhausted;
    return flat === null ? null : `the held-out loss has been flat for ${flat} validations`;
  }

  /** A folder that the reward `clip` reads as any export of Hugging Face's: both halves as ONNX, one sample to a run. */
  async files(iteration: number): Promise<CheckpointFiles> {
    const { config, trained } = this;
    const side = config.vision.image_size;
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
      image_mean: CENTRE,
      image_std: CENTRE,
    };
    return {
      [CONFIG_FILE]: clipConfigJson(config),
      'preprocessor_config.json': `${JSON.stringify(preprocessor, null, 2)}\n`,
      [TOKENIZER_FILE]: this.tokenizerJson,
      'text_model.onnx': this.#half('text_embeds', ({ ids }) => embedTexts(config, ids)),
      'vision_model.onnx': this.#half('image_embeds', ({ pixels }) => embedPictures(config, pixels)),
      ...trained.files(),
      ...trainerFile({ iteration, optimizer_steps: trained.steps, ...this.#stopping.state }),
    };
  }

  async checksum(): Promise<string> {
    return this.trained.checksum();
  }

  dispose(): Promise<void> {
    return this.session.dispose();
  }

  #half(output: string, build: (inputs: ReturnType<typeof clipInputs>) => Value): Uint8Array {
    const graph = new Graph(output);
    const value = build(clipInputs(graph, this.config, 1));
    return toOnnx(graph, new Map([[output, value]]), { standalone: this.trained.weights }).bytes;
  }

  /** Fewer samples than a batch has are repeated. */
  async #run(samples: readonly CaptionedPicture[]): Promise<Readonly<Record<string, TensorData>>> {
    const { batch_size: size } = this.deps.sft;
    const { context } = this.tokenizer;
    const found = await Promise.all(samples.map((sample) => this.#pixelsOf(sample)));
    const texts = await Promise.all(samples.map(({ text }) => this.tokenizer.encode(text)));
    const numbers = found[0].length;
    const pixels = new Float32Array(size * numbers);
    const ids = new BigInt64Array(size * context);
    for (let i = 0; i < size; i++) {
      pixels.set(found[i % samples.length], i * numbers);
      ids.set(texts[i % samples.length].ids, i * context);
    }
    return this.session.run({ input_ids: ids, pixel_values: pixels }, this.trained.weights);
  }

  async #pixelsOf(sample: CaptionedPicture): Promise<Float32Array> {
    const known = this.#pixels.get(sample.path);
    if (known !== undefined) return known;
    const pixels = preprocess(await captionedPixels(sample), this.#steps);
    this.#pixels.set(sample.path, pixels, { size: pixels.byteLength });
    return pixels;
  }
}

function configOf({ projection_dim, text_config, vision_config }: ClipInit, tokenizer: ClipTokenizer): ClipConfig {
  const { start, end } = tokenizer.marks;
  return {
    projection_dim,
    text: {
      hidden_size: text_config.hidden_size,
      intermediate_size: text_config.intermediate_size,
      num_hidden_layers: text_config.num_hidden_layers,
      num_attention_heads: text_config.num_attention_heads,
      max_position_embeddings: text_config.max_position_embeddings,
      vocab_size: tokenizer.size,
      bos_token_id: start,
      eos_token_id: end,
    },
    vision: vision_config,
  };
}

function scalar(out: Readonly<Record<string, TensorData>>, name: string): number {
  return (out[name] as Float32Array)[0];
}

/** The share of rows whose largest entry stands on the diagonal. */
function accuracy(cosines: Float32Array, size: number): number {
  let right = 0;
  for (let row = 0; row < size; row++) {
    const own = cosines.subarray(row * size, (row + 1) * size);
    if (own.every((one) => one <= own[row])) right += 1;
  }
  return right / size;
}
