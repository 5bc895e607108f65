/** Training of the image tokenizer: a small VQ autoencoder that learns from pixels alone. */
import { RandomStream } from '../core/random.js';
import type { ImageTokenizerSettings } from '../config/settings.js';
import { openImageDataset, readImages } from '../data/images.js';
import { createSampler } from '../data/sampler.js';
import { Session } from '../engines/onnx/session.js';
import { toPatches } from '../environments/vision_tokens.js';
import { gradients } from '../graph/differentiate.js';
import { Graph } from '../graph/ir.js';
import { autoencoderLoss, CODEBOOK, patchSize } from '../nets/image_tokenizer.js';
import type { CheckpointFiles } from '../models/files.js';
import type { Metrics } from '../run/metrics.js';
import { sessionOptions } from '../engines/onnx/session_options.js';
import type { Training } from './loop.js';
import type { TrainedModel, TrainState } from '../engines/onnx/trained_weights.js';
import type { ImageTokenizerConfig } from '../nets/image_tokenizer.js';

export type TokenizerState = TrainState<TrainedModel & { readonly config: ImageTokenizerConfig }>;

/** Every so many steps, codes that no patch of the batch used are moved onto vectors of the batch … */
const REVIVE_EVERY = 25;
/** … until this step, so that codes keep their meaning afterwards. */
const REVIVE_UNTIL = 300;

/** Peak signal-to-noise ratio in decibels for a mean squared error over [0, 1]. */
export function psnr(meanSquaredError: number): number {
  return -10 * Math.log10(meanSquaredError);
}

/**
 * What other ranks than the first do of this training: nothing. A step is one micro-batch, which one rank computes; the
 * decisions of the loop are rank 0's.
 */
export class IdleTraining implements Training {
  readonly kind = 'sft';
  async step(): Promise<Metrics> {
    return {};
  }
  async evaluate(): Promise<Metrics> {
    return {};
  }
  shouldStop(): null {
    return null;
  }
  files(): Record<string, never> {
    return {};
  }
  checksum(): null {
    return null;
  }
  async dispose(): Promise<void> {}
}

export class ImageTokenizerTraining implements Training {
  readonly kind = 'sft';
  private constructor(
    private readonly settings: ImageTokenizerSettings,
    private readonly state: TokenizerState,
    /** All training images' patches: [images, patches of an image, numbers]. */
    private readonly train: readonly Float32Array[],
    private readonly validation: readonly Float32Array[],
    private readonly session: Session,
    private readonly order: (globalIndex: number) => number,
    private readonly rows: number,
  ) {}

  static async open(settings: ImageTokenizerSettings, state: TokenizerState): Promise<ImageTokenizerTraining> {
    const load = async (path: string): Promise<Float32Array[]> => {
      const source = openImageDataset(path);
      const images = await readImages(
        source,
        Array.from({ length: source.length }, (_, i) => i),
      );
      return images.map((image) => toPatches([image], settings.environment.init.patch));
    };
    const perSource = await Promise.all(settings.data.train.map(({ path }) => load(path)));
    const validation = (await Promise.all(settings.data.validation.map(({ path }) => load(path)))).flat();
    const coefficients = settings.data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient]));
    const sampler = createSampler(
      perSource.map((images, i) => ({ name: settings.data.train[i].path, length: images.length })),
      { seed: settings.seed, coefficients },
    );
    const starts = perSource.map((_, i) => perSource.slice(0, i).reduce((sum, images) => sum + images.length, 0));
    const train = perSource.flat();
    const size = patchSize(settings.environment.init);
    const rows = settings.algorithm.sft.batch_size * Math.max(...train.map((patches) => patches.length / size));
    const graph = new Graph('image tokenizer');
    const { loss, reconstruction, codes, vectors } = autoencoderLoss(
      settings.environment.init,
      graph.input('patches', [rows, size]),
    );
    const names = [...graph.parameters.keys()];
    const found = gradients(loss, [...graph.parameters.values()]);
    const session = await Session.compile(
      graph,
      { loss, reconstruction, codes, vectors, ...Object.fromEntries(names.map((name, i) => [`d:${name}`, found[i]])) },
      sessionOptions(settings.environment.engine),
    );
    const order = (globalIndex: number): number => {
      const place = sampler.at(globalIndex);
      return starts[place.source] + place.index;
    };
    return new ImageTokenizerTraining(settings, state, train, validation, session, order, rows);
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const size = this.settings.algorithm.sft.batch_size;
    const batch = Array.from({ length: size }, (_, i) => this.train[this.order((iteration - 1) * size + i)]);
    const { loss, vectors, codes, gradient } = await this.#run(batch);
    const update = this.state.step(gradient);
    if (iteration % REVIVE_EVERY === 0 && iteration <= REVIVE_UNTIL) this.#revive(iteration, vectors, codes);
    const seconds = (performance.now() - start) / 1000;
    return {
      'policy/loss': loss,
      'policy/grad_norm': update.gradNorm,
      'policy/learning_rate': update.learningRate,
      'time/total': seconds,
    };
  }

  async evaluate(iteration: number): Promise<Metrics> {
    const size = this.settings.algorithm.sft.batch_size;
    const images = this.validation.slice(0, Math.max(size, this.settings.validation.prompts));
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
    if (iteration > 0) this.state.noteHeldOutLoss(iteration, error, this.settings.algorithm.sft.min_delta);
    return {
      'validation/loss': error,
      'validation/psnr': psnr(error),
      'codebook/used': used.size / this.settings.environment.init.codebook_size,
    };
  }

  shouldStop(): string | null {
    const { patience } = this.settings.algorithm.sft;
    if (patience === null || this.state.flatValidations < patience) return null;
    return `the held-out error has been flat for ${this.state.flatValidations} validations`;
  }

  files(iteration: number): CheckpointFiles {
    return this.state.files(iteration);
  }

  checksum(): string {
    return this.state.checksum();
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
    const size = patchSize(this.settings.environment.init);
    const patches = new Float32Array(this.rows * size);
    let at = 0;
    // Images smaller than the largest leave rows over: they are filled from the batch's beginning.
    for (let i = 0; at < patches.length; i++) {
      const image = batch[i % batch.length];
      patches.set(image.subarray(0, Math.min(image.length, patches.length - at)), at);
      at += image.length;
    }
    const out = await this.session.run({ patches }, this.state.model.weights);
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
    const { code_dim, codebook_size } = this.settings.environment.init;
    const codebook = this.state.model.weights.get(CODEBOOK)!.data;
    const stream = new RandomStream(this.settings.seed, 'revive', iteration);
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
