/** AdamW with float32 master weights, gradient clipping and learning-rate schedules. Weights are changed in place. */
import { CheckpointError, InternalError } from '../../core/errors.js';
import { requireFinite } from '../../core/finite.js';
import { writable } from '../../core/half.js';
import type { FloatTensor } from '../../core/safetensors.js';
import { formatShape, sameShape } from '../graph/ir.js';

/** With the names of a config's optimizer section. */
export interface AdamWOptions {
  readonly betas: readonly [number, number];
  readonly eps: number;
  /** Decoupled: the weight shrinks by learning rate times this. */
  readonly weight_decay: number;
  /**
   * Decay of an exponential moving average of the weights, which starts as a copy of them. Null or absent means none.
   */
  readonly ema_decay?: number | null;
}

/** The optimizer's state for one parameter. */
interface ParameterState {
  readonly weight: FloatTensor;
  readonly first: Float32Array;
  readonly second: Float32Array;
  readonly average: Float32Array | null;
}

/** AdamW (Loshchilov and Hutter, 2019): w -= lr (m^ / (sqrt(v^) + eps) + decay w), with bias-corrected moving averages m^ of g and v^ of g^2. */
export class AdamW {
  readonly #states = new Map<string, ParameterState>();
  #steps = 0;

  constructor(
    readonly weights: ReadonlyMap<string, FloatTensor>,
    readonly options: AdamWOptions,
  ) {
    const averaged = (options.ema_decay ?? null) !== null;
    for (const [name, weight] of weights) {
      const { length } = writable(name, weight);
      this.#states.set(name, {
        weight,
        first: new Float32Array(length),
        second: new Float32Array(length),
        average: averaged ? weight.data.slice() : null,
      });
    }
  }

  /** Steps taken so far. */
  get steps(): number {
    return this.#steps;
  }

  /** Takes one step with the gradients times `clip`. Weights without a gradient do not change. */
  step(gradients: ReadonlyMap<string, Float32Array>, learningRate: number, clip = 1): void {
    for (const [name, gradient] of gradients) {
      if (this.#states.get(name)?.weight.data.length !== gradient.length) {
        throw new InternalError(`the optimizer got a gradient of ${gradient.length} elements for ${name}`);
      }
    }
    const {
      betas: [beta1, beta2],
      eps,
      weight_decay,
      ema_decay,
    } = this.options;
    this.#steps += 1;
    const factors: StepFactors = {
      clip,
      beta1,
      beta2,
      scale: learningRate / (1 - beta1 ** this.#steps),
      rootCorrection: 1 / Math.sqrt(1 - beta2 ** this.#steps),
      eps,
      remaining: 1 - learningRate * weight_decay,
    };
    for (const [name, { weight, first, second, average }] of this.#states) {
      const gradient = gradients.get(name);
      if (gradient !== undefined) stepInPlace(weight.data, first, second, gradient, factors);
      if (average !== null) moveAverage(average, weight.data, ema_decay ?? 0);
    }
  }

  /** The moving average of the weights. Null without one. */
  averages(): Map<string, FloatTensor> | null {
    const out = new Map<string, FloatTensor>();
    for (const [name, { weight, average }] of this.#states) {
      if (average === null) return null;
      out.set(name, { shape: weight.shape, data: average });
    }
    return out;
  }

  /**
   * The state as tensors `exp_avg.<parameter>` and `exp_avg_sq.<parameter>`, and `ema.<parameter>` if there is an
   * average. They share memory with the optimizer. `steps` is stored separately.
   */
  state(): Map<string, FloatTensor> {
    const out = new Map<string, FloatTensor>();
    for (const [name, state] of this.#states) {
      for (const [prefix, data] of partsOf(state)) out.set(`${prefix}.${name}`, { shape: state.weight.shape, data });
    }
    return out;
  }

  /** Copies a state from `state()`. Raises CheckpointError if a tensor is missing, misshapen or not finite. */
  restore(tensors: ReadonlyMap<string, FloatTensor>, steps: number): void {
    const copies: (readonly [Float32Array, Float32Array])[] = [];
    for (const [name, state] of this.#states) {
      for (const [prefix, data] of partsOf(state)) {
        const found = tensors.get(`${prefix}.${name}`);
        if (found === undefined || !sameShape(found.shape, state.weight.shape)) {
          const what = found === undefined ? 'is missing' : `has shape ${formatShape(found.shape)}`;
          throw new CheckpointError(
            `optimizer tensor ${prefix}.${name} ${what}, expected ${formatShape(state.weight.shape)}`,
            { next: 'Resume with the model and the optimizer settings that the checkpoint was written with.' },
          );
        }
        requireFinite([[`${prefix}.${name}`, found]]);
        copies.push([data, found.data]);
      }
    }
    for (const [into, from] of copies) into.set(from);
    this.#steps = steps;
  }
}

/** Factors of one step, the same for all parameters. */
interface StepFactors {
  /** The factor that gradients are multiplied by first. */
  readonly clip: number;
  readonly beta1: number;
  readonly beta2: number;
  /** The learning rate over the bias correction of the first moment. */
  readonly scale: number;
  /** One over the root of the bias correction of the second moment. */
  readonly rootCorrection: number;
  readonly eps: number;
  /** The share of a weight that remains after its decay. */
  readonly remaining: number;
}

/**
 * One step of AdamW over arrays of the same length, computed in float64 from float32. Changes weights and moments in
 * place.
 */
function stepInPlace(
  weights: Float32Array,
  first: Float32Array,
  second: Float32Array,
  gradient: Float32Array,
  { clip, beta1, beta2, scale, rootCorrection, eps, remaining }: StepFactors,
): void {
  const [fresh1, fresh2] = [1 - beta1, 1 - beta2];
  for (let i = 0; i < weights.length; i++) {
    const d = Math.fround(gradient[i] * clip);
    const m = beta1 * first[i] + fresh1 * d;
    const v = beta2 * second[i] + fresh2 * d * d;
    weights[i] = remaining * weights[i] - (scale * m) / (Math.sqrt(v) * rootCorrection + eps);
    first[i] = m;
    second[i] = v;
  }
}

function partsOf({ first, second, average }: ParameterState): (readonly [string, Float32Array])[] {
  return [['exp_avg', first], ['exp_avg_sq', second], ...(average === null ? [] : [['ema', average] as const])];
}

function moveAverage(average: Float32Array, w: Float32Array, decay: number): void {
  const fresh = 1 - decay;
  for (let i = 0; i < average.length; i++) average[i] = decay * average[i] + fresh * w[i];
}

/** The sum of squares in float64, by four interleaved sums in a fixed order. */
function sumOfSquares(g: Float32Array): number {
  let [a, b, c, d] = [0, 0, 0, 0];
  const whole = g.length - (g.length % 4);
  for (let i = 0; i < whole; i += 4) {
    a += g[i] * g[i];
    b += g[i + 1] * g[i + 1];
    c += g[i + 2] * g[i + 2];
    d += g[i + 3] * g[i + 3];
  }
  for (let i = whole; i < g.length; i++) a += g[i] * g[i];
  return a + b + (c + d);
}

/** The joint Euclidean norm of gradients, summed in float64 in the order of the map. */
export function gradientNorm(gradients: ReadonlyMap<string, Float32Array>): number {
  let squares = 0;
  for (const g of gradients.values()) squares += sumOfSquares(g);
  return Math.sqrt(squares);
}

/** The factor that limits gradients with this joint norm to `maxNorm` (null: no limit), as in torch's clip_grad_norm_. */
export function clipFactor(norm: number, maxNorm: number | null): number {
  return maxNorm === null ? 1 : Math.min(1, maxNorm / (norm + 1e-6));
}

interface WarmupOptions {
  /** The peak. */
  readonly learningRate: number;
  readonly warmupSteps: number;
}

/**
 * 'linear' and 'cosine' fall from the peak to `floor` (default 0), which step `totalSteps` would have. Warm-up is
 * included.
 */
export type ScheduleOptions =
  | (WarmupOptions & { readonly schedule: 'constant' })
  | (WarmupOptions & { readonly schedule: 'linear' | 'cosine'; readonly totalSteps: number; readonly floor?: number });

/** The remaining part of the way from the peak to the floor after a share of the decay. */
const DECAY = {
  linear: (done: number): number => 1 - done,
  cosine: (done: number): number => (1 + Math.cos(Math.PI * done)) / 2,
} as const;

/**
 * The learning rate of step `step`, counted from 0. Warm-up rises linearly and reaches the peak at its last step. A
 * pure function, so a resumed run needs only the number of steps.
 */
export function learningRateAt(step: number, options: ScheduleOptions): number {
  const { learningRate, warmupSteps, schedule } = options;
  if (step < warmupSteps) return (learningRate * (step + 1)) / warmupSteps;
  if (schedule === 'constant') return learningRate;
  const { totalSteps, floor = 0 } = options;
  const done = Math.min(1, (step - warmupSteps) / Math.max(1, totalSteps - warmupSteps));
  // In this form both ends are exact.
  const share = DECAY[schedule](done);
  return learningRate * share + floor * (1 - share);
}
