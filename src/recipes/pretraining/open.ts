/** Opens the recipes that train a model for images on images or captioned images. */
import { Datasets } from '../../data/datasets.js';
import type { ComparedSample } from '../../data/overlap.js';
import type { SampleSource } from '../../data/types.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import type { WordsSftSettings } from '../../config/schema/algorithm.js';
import type { EngineSettings } from '../../config/schema/model.js';
import type { TrainedSettings } from '../../config/schema/run.js';
import { recordDatasets, type TrainingContext } from '../../train/context.js';
import type { Check, OpenRecipe } from '../recipe.js';
import { openDatalist, readListedFile } from '../../data/datalist.js';
import { captionChecks, checkOf, datasetChecks, flowPartChecks, inpaintCheck } from '../shared/checks.js';
import { Pretraining, type Network } from '../../train/pretraining/pretraining.js';
import { scheduleOf } from '../../train/update.js';
import type { TinyData, TinyDataset } from '../../data/tiny/build.js';
import { comparedInpaint, openSelfBench } from '../../data/self_bench.js';
import { autoencoderNetwork } from '../../train/pretraining/image_autoencoder.js';
import { signData } from '../../data/tiny/sign_scenes.js';
import {
  reductionOf,
  type ImageAutoencoderSettings,
  type ImageTokenizerSettings,
  type ImageTextEncoderSettings,
  type TextToImageSettings,
} from './settings.js';
import { openImageDataset, readImages } from '../../data/edits.js';
import { sha256, coverImage } from '../../core/images/image.js';
import { toPatches } from '../../train/environments/trained_vision_tokens.js';
import { jointVocabularyJson, THINKING_WORDS } from '../../train/policies/tokens/emu3.js';
import { tinyVocabulary } from '../../data/tiny/edits.js';
import { tokenizerNetwork } from '../../train/pretraining/image_tokenizer.js';
import { imageData } from '../../data/tiny/dataset.js';
import { comparedCaption, openCaptioned, captionedPixels, type CaptionedImage } from '../../data/captioned.js';
import { clipNetwork } from '../../train/pretraining/contrastive.js';
import { captionedData } from '../../data/tiny/captioned.js';
import type { ImageCodec } from '../../train/environments/image_codec.js';
import { WORDS_FILE, WordEncoder, wordsIn, type PromptEncoder } from '../../train/environments/word_encoder.js';
import type { RunResolver } from '../../models/reference.js';
import { freshFlux, type FluxConfig } from '../../compute/nets/flow/config.js';
import { initFlow } from '../../train/policies/flow/load.js';
import { requireFit, flowCondition, latentSize } from '../../train/policies/flow/image_model.js';
import { FlowPolicy } from '../../train/policies/flow/policy.js';
import type { Training } from '../../train/loop.js';
import { flowLabels, type LabeledImages, type ImagePrompt } from '../shared/flow/answers.js';
import { openCodec, openTextEncoder } from '../shared/flow/parts.js';
import { openSupervised } from '../shared/training.js';
import { LRUCache } from 'lru-cache';
import { pack } from '../../train/policies/flow/batch.js';

type WholeBatchSettings<T> = TrainedSettings &
  TinyData<T> & {
    readonly algorithm: WordsSftSettings;
    readonly data: NonNullable<TrainedSettings['data']>;
    readonly environment: { readonly engine: EngineSettings };
  };

/**
 * Opens a recipe whose whole batches fit into one step. `open` opens its datasets by path, and `networkOf` creates its
 * network.
 */
export function wholeBatchOpener<S extends WholeBatchSettings<D>, D, T, M>(
  tiny: Pick<TinyDataset<D>, 'make' | 'placesOf'>,
  checks: (settings: S) => Check[],
  open: (path: string, settings: S) => Promise<SampleSource<T>>,
  comparedAs: (source: SampleSource<T>, index: number) => ComparedSample,
  networkOf: (
    settings: S,
    data: Datasets<SampleSource<T>>,
    context: TrainingContext,
  ) => Promise<Network<T, M>> | Network<T, M>,
): OpenRecipe<S> {
  return {
    makeData: tiny.make,
    checks,
    open: async (settings, context) => {
      const { optimizer, algorithm, validation, environment } = settings;
      const placed = tiny.placesOf(settings);
      const data = await Datasets.open(settings, ({ path }) => open(placed(path), settings));
      await recordDatasets(context, settings, data.sources, { at: comparedAs, kept: 'files' });
      const session = sessionOptions(environment.engine);
      const deps = { optimizer, schedule: scheduleOf(settings), sft: algorithm.sft, validation, data, session };
      return Pretraining.open(deps, await networkOf(settings, data, context));
    },
    openTask: async () => null,
    sampleRows: async () => [],
  };
}

export const imageAutoencoder: OpenRecipe<ImageAutoencoderSettings> = wholeBatchOpener(
  signData,
  (settings) => {
    const options = { quoted: false, side: reductionOf(settings.environment), resolution: null };
    return datasetChecks(settings, (path) => inpaintCheck(path, options));
  },
  async (path) => openSelfBench(path),
  comparedInpaint,
  ({ seed, environment: { init }, algorithm: { kl_weight: klWeight, sft } }, { train }) =>
    autoencoderNetwork({ seed, init, klWeight, size: sft.batch_size }, train[0]),
);

const datalistCheck = checkOf('datalist', (path: string) => void readListedFile(openDatalist(path), 0));

export const imageTokenizer: OpenRecipe<ImageTokenizerSettings> = wholeBatchOpener(
  imageData,
  (settings) => datasetChecks(settings, datalistCheck),
  async (path, { environment }) => patchesOf(path, environment.init.patch),
  (source, index) => ({
    id: `sample ${index}`,
    words: '',
    image: async () => sha256(new Uint8Array(Float32Array.from(await source.read(index)).buffer)),
  }),
  (settings, data) => {
    const { seed, environment, algorithm } = settings;
    const tokenizerJson = jointTokenizerJson(settings);
    return tokenizerNetwork({ seed, init: environment.init, size: algorithm.sft.batch_size, tokenizerJson }, data);
  },
);

/**
 * The patches of a dataset's images. Each image is decoded once. Raises DataError for an image that cannot be cut into
 * patches.
 */
function patchesOf(path: string, patch: number): SampleSource<Promise<Float32Array>> {
  const images = openImageDataset(path);
  const kept = new Map<number, Promise<Float32Array>>();
  const cut = async (index: number): Promise<Float32Array> => toPatches(await readImages(images, [index]), patch);
  return {
    ...images,
    read: (index) => {
      const known = kept.get(index) ?? cut(index);
      kept.set(index, known);
      return known;
    },
  };
}

/** The `tokenizer.json` of the joint vocabulary: special tokens, the words of the data, and one token per code. */
function jointTokenizerJson({ data: { tiny }, environment }: ImageTokenizerSettings): string {
  const words = tiny === null ? [] : tinyVocabulary({ columns: tiny.grid, rows: tiny.grid, cell: tiny.cell });
  return jointVocabularyJson([...THINKING_WORDS, ...words], environment.init.codebook_size);
}

export const imageTextEncoder: OpenRecipe<ImageTextEncoderSettings> = wholeBatchOpener(
  captionedData,
  (settings) => captionChecks(settings),
  openCaptioned,
  comparedCaption,
  ({ seed, environment: { init }, algorithm: { matched_cosine: matchedCosine, sft } }, { train }, { checkpoint }) =>
    clipNetwork({ seed, init, matchedCosine, size: sft.batch_size, checkpoint }, train),
);

async function open(settings: TextToImageSettings, context: TrainingContext): Promise<Training> {
  const { seed, environment, optimizer, algorithm, validation } = settings;
  const { group, resolveRun } = context;
  const placed = captionedData.placesOf(settings);
  const datasets = await Datasets.open(settings, ({ path }) => openCaptioned(placed(path)));
  await recordDatasets(context, settings, datasets.sources, { at: comparedCaption, kept: 'memory' });
  const codec = openCodec(environment.parts.vae, environment.engine, resolveRun);
  const captions = datasets.train.flatMap((source) =>
    Array.from({ length: source.length }, (_, i) => source.read(i).text),
  );
  const encoder = encoderOf(settings, resolveRun, captions);
  const config = configOf(settings, codec, encoder);
  requireFit({ model: { config }, codec, encoder, making: environment });
  const policy = new FlowPolicy({
    model: initFlow(config, 'all', seed),
    optimizer,
    guidance: null,
    session: sessionOptions(environment.engine),
    peers: group,
    keepReference: false,
  });
  const task = new CaptionedTask(settings, codec, encoder, datasets);
  const besides = encoder instanceof WordEncoder ? { [WORDS_FILE]: encoder.json() } : {};
  const labels = flowLabels(task, algorithm.sft, validation.prompts);
  return openSupervised(settings, { task, policy, heldOut: null, extraFiles: besides, ...labels });
}

function encoderOf(
  { environment: { parts, init, engine } }: TextToImageSettings,
  resolveRun: RunResolver,
  captions: readonly string[],
): PromptEncoder {
  if (parts.text_encoder !== null) return openTextEncoder(parts.text_encoder, engine, resolveRun);
  const words = [...new Set(captions.flatMap(wordsIn))].sort();
  return new WordEncoder({ words, length: init.text_length });
}

function configOf(
  { environment: { init }, algorithm }: TextToImageSettings,
  { channels }: Pick<ImageCodec, 'channels'>,
  { width, pooledWidth }: PromptEncoder,
): FluxConfig {
  const latents = channels * init.patch ** 2;
  return freshFlux(init, {
    in_channels: latents,
    out_channels: latents,
    joint_attention_dim: width,
    pooled_projection_dim: pooledWidth,
    condition_dropout: algorithm.sft.condition_dropout,
    ip_adapter: null,
  });
}

export const textToImage: OpenRecipe<TextToImageSettings> = {
  makeData: captionedData.make,
  checks: (settings) => [...captionChecks(settings), ...flowPartChecks(settings.environment.parts)],
  open,
  openTask: async () => null,
  sampleRows: async () => [],
};

type Source = SampleSource<CaptionedImage>;

/** Latents are cached up to this many bytes, so that small datasets are decoded and encoded once. */
const KEPT_BYTES = 2 ** 28;

export class CaptionedTask implements LabeledImages<ImagePrompt, Source> {
  /** Latents by the row of their image. */
  readonly #wanted = new LRUCache<string, Float32Array>({ maxSize: KEPT_BYTES });

  constructor(
    readonly settings: TextToImageSettings,
    private readonly codec: ImageCodec,
    private readonly encoder: PromptEncoder,
    private readonly data: Datasets<Source>,
  ) {}

  get heldOut(): readonly { readonly source: Source }[] {
    return this.data.validation.map((source) => ({ source }));
  }

  get predictsSample(): boolean {
    return this.settings.environment.init.prediction === 'sample';
  }

  prompt(globalIndex: number): Promise<ImagePrompt> {
    const { source, index } = this.data.at(globalIndex);
    return this.promptAt(source, index);
  }

  /** Raises DataError for an image that cannot be read. */
  async promptAt(source: Source, index: number): Promise<ImagePrompt> {
    const sample = source.read(index);
    const { init } = this.settings.environment;
    const size = latentSize(this.settings.environment, this.codec);
    return {
      id: sample.id,
      instruction: sample.text,
      sourcePng: null,
      flow: flowCondition(await this.encoder.encode(sample.text), size, init.patch),
      wanted: () => this.#wantedOf(sample),
    };
  }

  async #wantedOf(sample: CaptionedImage): Promise<Float32Array> {
    const known = this.#wanted.get(sample.path);
    if (known !== undefined) return known;
    const { width, height, init } = this.settings.environment;
    const image = await captionedPixels(sample);
    const fits = image.width === width && image.height === height;
    const [planes] = await this.codec.encode([fits ? image : await coverImage(image, width, height)]);
    const wanted = pack(planes, init.patch);
    this.#wanted.set(sample.path, wanted, { size: wanted.byteLength });
    return wanted;
  }

  async dispose(): Promise<void> {
    await Promise.all([this.codec.dispose(), this.encoder.dispose()]);
  }
}
