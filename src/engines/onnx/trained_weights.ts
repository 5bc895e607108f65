/** A policy that is being trained: its weights, its optimizer, and what of both a checkpoint holds. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { readSafetensors, safetensorsPieces, type FloatTensor } from '../../core/safetensors.js';
import type { OptimizerSettings } from '../../config/settings.js';
import { AdamW, clipGradientNorm, learningRateAt, type ScheduleOptions } from './optimizer.js';
import type { PolicyModel } from '../../policies/tokens/model.js';
import type { CheckpointFiles } from '../../run/checkpoints.js';
import { CONFIG_FILE, POLICY_FILE, readWeights, TOKENIZER_FILE } from '../../models/files.js';

const OPTIMIZER_FILE = 'optimizer.safetensors';
/** The moving averages of the weights, under the weights' names, where such are kept. */
const AVERAGES_FILE = 'ema.safetensors';
const TRAINER_FILE = 'trainer.json';

/** Before a parameter's name, what the optimizer calls its moving average. */
const AVERAGE = 'ema.';

/** Everything else that a resumed run must know. */
interface TrainerState {
  readonly format: 1;
  readonly iteration: number;
  readonly optimizer_steps: number;
  readonly best_held_out_loss: number | null;
  readonly flat_validations: number;
  /** The iteration of the latest validation that the two above count. */
  readonly validated_iteration: number;
}

export interface StepReport {
  /** Before clipping. */
  readonly gradNorm: number;
  readonly learningRate: number;
  /** False when the gradient was not finite: then nothing was changed. */
  readonly applied: boolean;
}

/** What a trained model is, apart from its weights: enough for a policy and for an image tokenizer. */
export interface TrainedModel {
  readonly config: object;
  readonly weights: Map<string, FloatTensor>;
}

/** Weights under training. `M` is what its owner computes with. */
export class TrainState<M extends TrainedModel> {
  readonly #optimizer: AdamW;
  #best: number | null = null;
  #flat = 0;
  #noted = 0;

  constructor(
    readonly model: M,
    private readonly settings: OptimizerSettings,
    /** See `scheduleOf`. */
    private readonly schedule: ScheduleOptions,
    /** The `tokenizer.json` that goes with the model. */
    private readonly tokenizerJson: string,
  ) {
    this.#optimizer = new AdamW(model.weights, {
      betas: settings.betas,
      eps: settings.eps,
      weightDecay: settings.weight_decay,
      emaDecay: settings.ema_decay,
    });
  }

  get flatValidations(): number {
    return this.#flat;
  }

  /** Clips, then takes one AdamW step. A gradient that is not finite is reported and changes nothing. */
  step(gradients: Map<string, Float32Array>): StepReport {
    const learningRate = learningRateAt(this.#optimizer.steps, this.schedule);
    const gradNorm = clipGradientNorm(gradients, this.settings.max_grad_norm);
    const applied = Number.isFinite(gradNorm);
    if (applied) this.#optimizer.step(gradients, learningRate);
    return { gradNorm, learningRate, applied };
  }

  /** Counts validations in a row whose loss did not fall by `minDelta` below the best; one that is repeated counts once. */
  noteHeldOutLoss(iteration: number, loss: number, minDelta: number): void {
    if (iteration === this.#noted) return;
    this.#noted = iteration;
    if (this.#best === null || loss < this.#best - minDelta) {
      this.#best = loss;
      this.#flat = 0;
    } else this.#flat += 1;
  }

  /** Differs where weights differ in a bit. Ranks that train together must agree on it. */
  checksum(): string {
    let hash = 0x811c9dc5;
    for (const { data } of this.model.weights.values()) {
      const words = new Uint32Array(data.buffer, data.byteOffset, data.length);
      for (let i = 0; i < words.length; i++) hash = Math.imul(hash ^ words[i], 0x01000193);
    }
    return `${this.#optimizer.steps} steps, ${(hash >>> 0).toString(16)}`;
  }

  /** The files of a checkpoint. They are views of the weights and the optimizer, to be written before the next step. */
  files(iteration: number): CheckpointFiles {
    const state: TrainerState = {
      format: 1,
      iteration,
      optimizer_steps: this.#optimizer.steps,
      best_held_out_loss: this.#best,
      flat_validations: this.#flat,
      validated_iteration: this.#noted,
    };
    const moments = [...this.#optimizer.state()].filter(([name]) => !name.startsWith(AVERAGE));
    const averages = this.#optimizer.averages();
    return {
      [CONFIG_FILE]: `${JSON.stringify(this.model.config, null, 2)}\n`,
      [TOKENIZER_FILE]: this.tokenizerJson,
      [POLICY_FILE]: safetensorsPieces(this.model.weights),
      [OPTIMIZER_FILE]: safetensorsPieces(new Map(moments)),
      ...(averages === null ? {} : { [AVERAGES_FILE]: safetensorsPieces(averages) }),
      [TRAINER_FILE]: `${JSON.stringify(state, null, 2)}\n`,
    };
  }

  /** Takes over a checkpoint's weights, their averages, optimizer and counters, in place. Raises CheckpointError where one of them is missing. */
  restore(folder: string): void {
    const shapes = new Map([...this.model.weights].map(([name, { shape }]) => [name, shape]));
    for (const [name, { data }] of readWeights(join(folder, POLICY_FILE), shapes)) {
      this.model.weights.get(name)!.data.set(data);
    }
    const path = join(folder, TRAINER_FILE);
    let state: TrainerState;
    try {
      state = JSON.parse(readFileSync(path, 'utf8')) as TrainerState;
    } catch (cause) {
      throw new CheckpointError('cannot read the trainer state', { where: path, cause });
    }
    const tensors = readSafetensors(join(folder, OPTIMIZER_FILE));
    const averages = join(folder, AVERAGES_FILE);
    if (this.settings.ema_decay !== null && existsSync(averages)) {
      for (const [name, tensor] of readSafetensors(averages)) tensors.set(`${AVERAGE}${name}`, tensor);
    }
    this.#optimizer.restore(tensors, state.optimizer_steps);
    this.#best = state.best_held_out_loss;
    this.#flat = state.flat_validations;
    this.#noted = state.validated_iteration;
  }
}

export type PolicyState = TrainState<PolicyModel>;
