/** Actions on the forward process: pictures with noise, and the velocities that lead from the one to the other. Pure functions. */
import type { RandomStream } from '../../core/random.js';
import { noisySteps } from '../../schema/training.js';
import type { FlowAction } from './batch.js';
import { velocityGaussian } from './steps.js';

export interface NoisedPictures {
  /** Noise levels of one picture; null means all that its solver's first steps begin at. */
  readonly levels: number | null;
}

/** Levels at which the first floor(steps * fraction) steps of a schedule begin: all in their order, or so many of them, drawn without replacement. */
export function levelsOf(
  sigmas: readonly number[],
  fraction: number,
  { levels }: NoisedPictures,
  random: RandomStream,
): number[] {
  const all = sigmas.slice(0, noisySteps(sigmas.length - 1, fraction));
  if (levels === null) return all;
  return Array.from({ length: levels }, () => all.splice(random.integer(all.length), 1)[0]);
}

/** At each level t, with noise of its own: x_t = (1 - t) x0 + t eps and the velocity eps - x0. `picture` is x0 [N, C]. */
export function noisedActions(picture: Float32Array, levels: readonly number[], random: RandomStream): FlowAction[] {
  return levels.map((sigma) => {
    const noise = picture.map(() => random.normal());
    return {
      sigma,
      x: picture.map((one, i) => (1 - sigma) * one + sigma * noise[i]),
      drawn: noise.map((eps, i) => eps - picture[i]),
      gaussian: velocityGaussian,
    };
  });
}
