/** Training of the image tokenizer: a small VQ autoencoder that learns from pixels alone. */
import { RandomStream } from '../core/random.js';
import { readImages, type ImageSample } from '../data/images.js';
import { createSampler } from '../data/sampler.js';
import type { SampleSource } from '../data/types.js';
import { learningRateAt, type ScheduleOptions } from '../engines/onnx/optimizer.js';
import { Session, type SessionOptions } from '../engines/onnx/session.js';
import { TrainedWeights } from '../engines/onnx/trained_weights.js';
import { toPatches } from '../environments/trained_vision_tokens.js';
import { gradients } from '../graph/differentiate.js';
import { Graph } from '../graph/ir.js';
import { CONFIG_FILE, TOKENIZER_FILE, type CheckpointFiles } from '../models/files.js';
import { autoencoderLoss, CODEBOOK, initImageTokenizer, patchSize } from '../nets/image_tokenizer.js';
import type { Metrics } from '../run/metrics.js';
import type { SftSettings } from '../schema/algorithm.js';
import type { ImageTokenizerInit } from '../schema/model.js';
import type { OptimizerSettings, ValidationSettings } from '../schema/training.js';
import { EarlyStopping } from './early_stopping.js';
import type { Training } from './loop.js';
import { readTrainerState, trainerFile } from './trainer_state.js';

export interface ImageDatasets {
  readonly train: readonly SampleSource<ImageSample>[];
  /** How often the images of each of `train` are seen; none: all as often as the largest. */
  readonly coefficients: readonly number[];
  readonly validation: readonly SampleSource<ImageSample>[];
}

export interface ImageTokenizerDeps {
  readonly seed: number;
  readonly init: ImageTokenizerInit;
  readonly optimizer: OptimizerSettings;
  readonly schedule: ScheduleOptions;
  readonly sft: Pick<SftSettings['sft'], 'batch_size' | 'patience' | 'min_delta'>;
  readonly data: ImageDatasets;
  readonly validation: Pick<ValidationSettings, 'prompts'>;
  readonly session: SessionOptions;
  /** The `tokenizer.json` of the joint vocabulary that goes with the codes. */
  readonly tokenizerJson: string;
}

/** Every so many steps, codes that no patch of the batch used are moved onto vectors of the batch … */
const REVIVE_EVERY = 25;
/** … until this step, so that codes keep their meaning afterwards. */
const REVIVE_UNTIL = 300;

/** Peak signal-to-noise ratio in decibels for a mean squared error over [0, 1]. */
export function psnr(meanSquaredError: number): number {
  return -10 * Math.log10(meanSquaredError);
}

export class ImageTokenizerTraining implements Training {
  readonly #stopping: EarlyStopping;

  private constructor(
    private readonly deps: ImageTokenizerDeps,
    private readonly trained: TrainedWeights,
    /** All training images' patches: [images, patches of an image, numbers]. */
    private readonly train: readonly Float32Array[],
    private readonly validation: readonly Float32Array[],
    private readonly session: Session,
    private readonly order: (globalIndex: number) => number,
    private readonly rows: number,
  ) {
    this.#stopping = new EarlyStopping(deps.sft);
  }

  async restore(checkpoint: string): Promise<void> {
    const state = readTrainerState(checkpoint);
    this.#stopping.restore(state);
    this.trained.restore(checkpoint, state.optimizer_steps);
  }

  /** Reads all images and compiles the step. Raises DataError for images that cannot be cut into patches. */
  static async open(deps: ImageTokenizerDeps): Promise<ImageTokenizerTraining> {
    const { init, data, seed } = deps;
    const load = async (source: SampleSource<ImageSample>): Promise<Float32Array[]> => {
      const images = await readImages(
        source,
        Array.from({ length: source.length }, (_, i) => i),
      );
      return images.map((image) => toPatches([image], init.patch));
    };
    const perSource = await Promise.all(data.train.map(load));
    const validation = (await Promise.all(data.validation.map(load))).flat();
    const { coefficients } = data;
    const sampler = createSampler(data.train, { seed, coefficients });
    const starts = perSource.map((_, i) => perSource.slice(0, i).reduce((sum, images) => sum + images.length, 0));
    const train = perSource.flat();
    const size = patchSize(init);
    const rows = deps.sft.batch_size * Math.max(...train.map((patches) => patches.length / size));
    const graph = new Graph('image tokenizer');
    const { loss, reconstruction, codes, vectors } = autoencoderLoss(init, graph.input('patches', [rows, size]));
    const names = [...graph.parameters.keys()];
    const found = gradients(loss, [...graph.parameters.values()]);
    const session = await Session.compile(
      graph,
      { loss, reconstruction, codes, vectors, ...Object.fromEntries(names.map((name, i) => [`d:${name}`, found[i]])) },
      deps.session,
    );
    const order = (globalIndex: number): number => {
      const place = sampler.at(globalIndex);
      return starts[place.source] + place.index;
    };
    const trained = new TrainedWeights(initImageTokenizer(init, seed), deps.optimizer);
    return new ImageTokenizerTraining(deps, trained, train, validation, session, order, rows);
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const size = this.deps.sft.batch_size;
    const batch = Array.from({ length: size }, (_, i) => this.train[this.order((iteration - 1) * size + i)]);
    const { loss, vectors, codes, gradient } = await this.#run(batch);
    const learningRate = learningRateAt(this.trained.steps, this.deps.schedule);
    const { gradNorm } = this.trained.step(gradient, learningRate);
    if (iteration % REVIVE_EVERY === 0 && iteration <= REVIVE_UNTIL) this.#revive(iteration, vectors, codes);
    const seconds = (performance.now() - start) / 1000;
    return {
      'policy/loss': loss,
      'policy/grad_norm': gradNorm,
      'policy/learning_rate': learningRate,
      'time/total': seconds,
    };
  }

  async evaluate(iteration: number): Promise<Metrics> {
    const size = this.deps.sft.batch_size;
    const images = this.validation.slice(0, Math.max(size, this.deps.validation.prompts));
    // Without held-out data there is nothing to measure.
    if (images.length === 0) return {};
    let sum = 0;
    let batches = 0;
    const used = new Set<bigint>();
    // Whole batches alone, so that no image counts twice; a set smaller than a batch is one batch.
    for (let start = 0; start === 0 || start + size <= images.length; start += size) {
      const { reconstruction, codes } = await this.#run(images.slice(start, start + size));
      sum += reconstruction;
      for (const code of codes) used.add(code);
      batches++;
    }
    const error = sum / batches;
    if (iteration > 0) this.#stopping.note(iteration, error);
    return {
      'validation/loss': error,
      'validation/psnr': psnr(error),
      'codebook/used': used.size / this.deps.init.codebook_size,
    };
  }

  shouldStop(): string | null {
    const flat = this.#stopping.exhausted;
    return flat === null ? null : `the held-out error has been flat for ${flat} validations`;
  }

  async files(iteration: number): Promise<CheckpointFiles> {
    return {
      [CONFIG_FILE]: `${JSON.stringify(this.deps.init, null, 2)}\n`,
      [TOKENIZER_FILE]: this.deps.tokenizerJson,
      ...this.trained.files(),
      ...trainerFile({ iteration, optimizer_steps: this.trained.steps, ...this.#stopping.state }),
    };
  }

  async checksum(): Promise<string> {
    return this.trained.checksum();
  }

  async dispose(): Promise<void> {
    await this.session.dispose();
  }

  async #run(batch: readonly Float32Array[]): Promise<{
    loss: number;
    reconstruction: number;
    vectors: Float32Array;
    codes: BigInt64Array;
    gradient: Map<string, Float32Array>;
  }> {
    const size = patchSize(this.deps.init);
    const patches = new Float32Array(this.rows * size);
    let at = 0;
    // Images smaller than the largest leave rows over: they are filled from the batch's beginning.
    for (let i = 0; at < patches.length; i++) {
      const image = batch[i % batch.length];
      patches.set(image.subarray(0, Math.min(image.length, patches.length - at)), at);
      at += image.length;
    }
    const out = await this.session.run({ patches }, this.trained.weights);
    const gradient = new Map<string, Float32Array>();
    for (const [name, value] of Object.entries(out)) {
      if (name.startsWith('d:')) gradient.set(name.slice(2), value as Float32Array);
    }
    return {
      loss: (out.loss as Float32Array)[0],
      reconstruction: (out.reconstruction as Float32Array)[0],
      vectors: out.vectors as Float32Array,
      codes: out.codes as BigInt64Array,
      gradient,
    };
  }

  /** Moves unused codes to vectors of the latest batch, so that the codebook does not collapse (Dhariwal et al., 2020). */
  #revive(iteration: number, vectors: Float32Array, codes: BigInt64Array): void {
    const { code_dim, codebook_size } = this.deps.init;
    const codebook = this.trained.weights.get(CODEBOOK)!.data;
    const stream = new RandomStream(this.deps.seed, 'revive', iteration);
    const used = new Set(codes);
    for (let code = 0; code < codebook_size; code++) {
      if (used.has(BigInt(code))) continue;
      const row = stream.integer(vectors.length / code_dim);
      for (let d = 0; d < code_dim; d++) {
        codebook[code * code_dim + d] = vectors[row * code_dim + d] + 0.01 * stream.normal();
      }
    }
  }
}
