/** Weights in training: the optimizer over them, and the content of a checkpoint for both. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { requireFinite } from '../core/finite.js';
import { readSafetensors, safetensorsPieces } from '../core/safetensors.js';
import { POLICY_FILE, readWeights, tensorsOf, type CheckpointFiles, type Weights } from './files.js';
import { AdamW, clipFactor, gradientNorm, type AdamWOptions } from '../compute/onnx/optimizer.js';

const OPTIMIZER_FILE = 'optimizer.safetensors';
/** The moving averages of the weights, under the weights' names, if there are any. */
const AVERAGES_FILE = 'ema.safetensors';

/** Prefix of a parameter's name in the optimizer's name for its moving average. */
const AVERAGE = 'ema.';

/** The files and names of the weights in a checkpoint. */
export interface WeightsLayout {
  readonly file: string;
  readonly stored: (name: string) => string;
  /** Texts in the file's header. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Untrained tensors in the same file, by their names there. Absent: none. */
  readonly beside?: Weights;
}

export const ownLayout: WeightsLayout = { file: POLICY_FILE, stored: (name) => name, metadata: {} };

export class TrainedWeights {
  readonly #optimizer: AdamW;
  #version = 0;

  constructor(
    /** Changed in place. */
    readonly weights: Weights,
    private readonly settings: AdamWOptions & { readonly max_grad_norm: number | null },
    private readonly layout = ownLayout,
  ) {
    this.#optimizer = new AdamW(weights, settings);
  }

  /** Optimizer steps taken so far. */
  get steps(): number {
    return this.#optimizer.steps;
  }

  /** A version number of the weights and their averages: it differs whenever they have changed. */
  get version(): number {
    return this.#version;
  }

  /** The moving averages, which share memory with the optimizer. Null without any. */
  get averages(): Weights | null {
    return this.#optimizer.averages();
  }

  /**
   * Takes one AdamW step with the clipped gradients, which stay unchanged. A gradient that is not finite is reported
   * and changes nothing.
   */
  step(gradients: ReadonlyMap<string, Float32Array>, learningRate: number): { gradNorm: number; applied: boolean } {
    const gradNorm = gradientNorm(gradients);
    const applied = Number.isFinite(gradNorm);
    if (applied) {
      this.#version += 1;
      this.#optimizer.step(gradients, learningRate, clipFactor(gradNorm, this.settings.max_grad_norm));
    }
    return { gradNorm, applied };
  }

  /** Differs if weights differ in a bit. */
  checksum(): string {
    let hash = 0x811c9dc5;
    for (const { data } of this.weights.values()) {
      const words = new Uint32Array(data.buffer, data.byteOffset, data.length);
      for (let i = 0; i < words.length; i++) hash = Math.imul(hash ^ words[i], 0x01000193);
    }
    return `${this.steps} steps, ${(hash >>> 0).toString(16)}`;
  }

  /**
   * The files of a checkpoint. They are views of the weights and the optimizer, to be written before the next step.
   * Raises CheckpointError if the weights or the optimizer's state are not finite: training could not continue from
   * such a checkpoint.
   */
  files(): CheckpointFiles {
    requireFinite(this.weights);
    requireFinite(this.#optimizer.state());
    const moments = [...this.#optimizer.state()].filter(([name]) => !name.startsWith(AVERAGE));
    const { averages } = this;
    const { file, stored, metadata, beside = [] } = this.layout;
    const trained = [...this.weights].map(([name, tensor]) => [stored(name), tensor] as const);
    return {
      [file]: safetensorsPieces(new Map([...trained, ...beside]), metadata),
      [OPTIMIZER_FILE]: safetensorsPieces(new Map(moments)),
      ...(averages === null ? {} : { [AVERAGES_FILE]: safetensorsPieces(averages) }),
    };
  }

  /**
   * Copies a checkpoint's weights, their averages and the optimizer after `steps` steps, in place. Raises
   * CheckpointError if one of them is missing or not finite.
   */
  restore(folder: string, steps: number): void {
    this.#version += 1;
    const shapes = new Map([...this.weights].map(([name, { shape }]) => [name, shape]));
    for (const [name, { data }] of readWeights(tensorsOf(join(folder, this.layout.file)), shapes, this.layout.stored)) {
      this.weights.get(name)!.data.set(data);
    }
    const tensors = readSafetensors(join(folder, OPTIMIZER_FILE));
    const averages = join(folder, AVERAGES_FILE);
    if (this.#optimizer.averages() !== null && existsSync(averages)) {
      for (const [name, tensor] of readSafetensors(averages)) tensors.set(`${AVERAGE}${name}`, tensor);
    }
    this.#optimizer.restore(tensors, steps);
  }
}
