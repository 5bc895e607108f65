/**
 * The steps of a flow's solver. With noise level sigma falling from 1 to 0, x = (1 - sigma) x0 + sigma eps, velocity v = eps - x0 and
 * dt = sigma' - sigma < 0. Pure functions.
 */
import { DataError } from '../../../core/errors.js';
import { noisySteps } from '../../../config/schema/training.js';

/**
 * A Gaussian over arrays x' around ofX x + ofVelocity v, whose log-density is averaged over the D elements instead of summed:
 *
 *   log p = offset - precision mean((x' - ofX x - ofVelocity v)^2)
 *
 * as flow-GRPO takes it (Liu et al., 2025, arXiv 2505.05470, yifan123/flow_grpo). For a standard deviation s, precision is 1 / (2 s^2) and
 * offset -log s - log(2 pi) / 2.
 */
export interface Gaussian {
  readonly ofX: number;
  readonly ofVelocity: number;
  readonly precision: number;
  readonly offset: number;
}

/** One step of a solver. */
export interface SolverStep extends Pick<Gaussian, 'ofX' | 'ofVelocity'> {
  /** The noise level that it starts at. */
  readonly sigma: number;
  /** Standard deviation of the noise that it adds. 0 for a step of the ODE. */
  readonly deviation: number;
}

/** Euler step of the ODE dx = v dsigma from level `at` of the schedule. */
export function odeStep(sigmas: readonly number[], at: number): SolverStep {
  return { sigma: sigmas[at], ofX: 1, ofVelocity: sigmas[at + 1] - sigmas[at], deviation: 0 };
}

/**
 * Flow-GRPO's step of the SDE with the same marginals: with s = noiseLevel sqrt(sigma / (1 - sigma)),
 *
 *   mean = x (1 + s^2 dt / (2 sigma)) + v (1 + s^2 (1 - sigma) / (2 sigma)) dt,   deviation = s sqrt(-dt).
 *
 * At sigma = 1, the 1 - sigma in s uses the schedule's second level in place of sigma.
 */
export function sdeStep(sigmas: readonly number[], at: number, noiseLevel: number): SolverStep {
  const sigma = sigmas[at];
  const dt = sigmas[at + 1] - sigma;
  const variance = (noiseLevel ** 2 * sigma) / (1 - (sigma === 1 ? sigmas[1] : sigma));
  return {
    sigma,
    ofX: 1 + (variance * dt) / (2 * sigma),
    ofVelocity: (1 + (variance * (1 - sigma)) / (2 * sigma)) * dt,
    deviation: Math.sqrt(variance * -dt),
  };
}

/** The distribution of a noisy step's result. */
export function gaussianOf({ ofX, ofVelocity, deviation }: SolverStep): Gaussian {
  return {
    ofX,
    ofVelocity,
    precision: 1 / (2 * deviation ** 2),
    offset: -Math.log(deviation) - Math.log(2 * Math.PI) / 2,
  };
}

/**
 * For a labeled image the action is the velocity itself: log p = -mean((v - (eps - x0))^2), the loss of flow matching (Lipman et al., 2022), which
 * is, up to a constant, the averaged log-density of a Gaussian of variance 1/2.
 */
export const velocityGaussian: Gaussian = { ofX: 0, ofVelocity: 1, precision: 1, offset: 0 };

/** The steps of a rollout that are noisy and learned from. */
export interface NoisySteps {
  /** Scale of the noise. 0 takes every step by the ODE. */
  readonly noiseLevel: number;
  /** Share of the steps that may be noisy: the first floor(steps * fraction). The last steps have hardly any noise to learn from. */
  readonly fraction: number;
  /** Only these consecutive steps are noisy. Null for no window. */
  readonly window: StepWindow | null;
}

export interface StepWindow {
  readonly size: number;
  /** [from, to): the range of all of its steps. */
  readonly range: readonly [number, number];
}

/**
 * The first noisy step, and one past the last. `uniform` in [0, 1) draws the place of the window. Raises DataError when a window does not fit, which checked
 * settings rule out.
 */
export function noisyRange(
  steps: number,
  { noiseLevel, fraction, window }: NoisySteps,
  uniform: number,
): readonly [number, number] {
  if (noiseLevel === 0) return [0, 0];
  const end = noisySteps(steps, fraction);
  if (window === null) return [0, end];
  const [from, to] = window.range;
  const places = Math.min(to, end) - from - window.size + 1;
  if (places < 1) {
    throw new DataError(
      `a window of ${window.size} noisy steps does not fit into steps ${from} to ${Math.min(to, end)} of ${steps}`,
      {
        next: 'Raise rollout.num_steps, or reduce rollout.sde_window.',
      },
    );
  }
  const start = from + Math.floor(uniform * places);
  return [start, start + window.size];
}
