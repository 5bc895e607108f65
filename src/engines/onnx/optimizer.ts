/** AdamW with float32 master weights, gradient clipping and learning-rate schedules. Weights are changed in place. */
import { InternalError } from '../../core/errors.js';
import type { FloatTensor } from '../../core/safetensors.js';

export interface AdamWOptions {
  readonly betas: readonly [number, number];
  readonly eps: number;
  /** Decoupled: the weight shrinks by learning rate times this. */
  readonly weightDecay: number;
}

/** AdamW (Loshchilov and Hutter, 2019): m, v moving averages of g, g^2; w -= lr (m^ / (sqrt(v^) + eps) + decay w). */
export class AdamW {
  readonly #first = new Map<string, Float32Array>();
  readonly #second = new Map<string, Float32Array>();
  #steps = 0;

  constructor(
    readonly weights: ReadonlyMap<string, FloatTensor>,
    readonly options: AdamWOptions,
  ) {
    for (const [name, { data }] of weights) {
      this.#first.set(name, new Float32Array(data.length));
      this.#second.set(name, new Float32Array(data.length));
    }
  }

  /** Steps taken so far. */
  get steps(): number {
    return this.#steps;
  }

  /** One step; weights without a gradient stay as they are. */
  step(gradients: ReadonlyMap<string, Float32Array>, learningRate: number): void {
    const { betas, eps, weightDecay } = this.options;
    const [beta1, beta2] = betas;
    this.#steps += 1;
    const scale = learningRate / (1 - beta1 ** this.#steps);
    const rootCorrection = 1 / Math.sqrt(1 - beta2 ** this.#steps);
    for (const [name, g] of gradients) {
      const w = this.weights.get(name)?.data;
      const m = this.#first.get(name);
      const v = this.#second.get(name);
      if (w === undefined || m === undefined || v === undefined || g.length !== w.length) {
        throw new InternalError(`a gradient of ${g.length} numbers for ${name}`);
      }
      for (let i = 0; i < w.length; i++) {
        const gi = g[i]!;
        const mi = beta1 * m[i]! + (1 - beta1) * gi;
        const vi = beta2 * v[i]! + (1 - beta2) * gi * gi;
        m[i] = mi;
        v[i] = vi;
        const wi = w[i]! * (1 - learningRate * weightDecay);
        w[i] = wi - (scale * mi) / (Math.sqrt(vi) * rootCorrection + eps);
      }
    }
  }

  /** The moments as tensors named `exp_avg.<parameter>` and `exp_avg_sq.<parameter>`. */
  state(): Map<string, FloatTensor> {
    const out = new Map<string, FloatTensor>();
    for (const [name, { shape }] of this.weights) {
      out.set(`exp_avg.${name}`, { shape, data: this.#first.get(name)! });
      out.set(`exp_avg_sq.${name}`, { shape, data: this.#second.get(name)! });
    }
    return out;
  }

  /** Takes over a state that `state()` gave. */
  restore(state: ReadonlyMap<string, FloatTensor>, steps: number): void {
    for (const [name, { data }] of this.weights) {
      const first = state.get(`exp_avg.${name}`)?.data;
      const second = state.get(`exp_avg_sq.${name}`)?.data;
      if (first?.length !== data.length || second?.length !== data.length) {
        throw new InternalError(`the optimizer state does not hold ${name}`);
      }
      this.#first.get(name)!.set(first);
      this.#second.get(name)!.set(second);
    }
    this.#steps = steps;
  }
}

/**
 * Scales gradients in place so that their joint norm is at most `maxNorm` (null: no limit), as torch's clip_grad_norm_ does.
 * Returns the norm before; where that is not finite, nothing is changed.
 */
export function clipGradientNorm(gradients: ReadonlyMap<string, Float32Array>, maxNorm: number | null): number {
  let squares = 0;
  for (const g of gradients.values()) for (let i = 0; i < g.length; i++) squares += g[i]! * g[i]!;
  const norm = Math.sqrt(squares);
  if (maxNorm === null || !Number.isFinite(norm)) return norm;
  const scale = maxNorm / (norm + 1e-6);
  if (scale < 1) for (const g of gradients.values()) for (let i = 0; i < g.length; i++) g[i]! *= scale;
  return norm;
}

export interface ScheduleOptions {
  readonly schedule: 'constant';
  readonly learningRate: number;
  readonly warmupSteps: number;
}

/** The learning rate of step `step`, counted from 0: linear warm-up, then as the schedule says. */
export function learningRateAt(step: number, { learningRate, warmupSteps }: ScheduleOptions): number {
  return step < warmupSteps ? (learningRate * (step + 1)) / warmupSteps : learningRate;
}
