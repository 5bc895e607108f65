/** How the families of flow models space their noise levels. */
import { CheckpointError } from '../../../core/errors.js';
import { flowClassOf, type FlowArchitecture, type FlowTransformerConfig } from '../../../compute/nets/flow/config.js';

export interface FlowModelType {
  /** Noise levels from 1 down to 0, steps + 1 of them, for an image with this many tokens. */
  sigmas(steps: number, tokens: number): number[];
}

/** `steps` evenly spaced levels from 1, then 0. */
function even(steps: number): number[] {
  return Array.from({ length: steps + 1 }, (_, i) => 1 - i / steps);
}

/** s k / (1 + (k - 1) s): levels are shifted towards 1 by a factor k, the same for all images. */
function moved(sigma: number, shift: number): number {
  return (shift * sigma) / (1 + (shift - 1) * sigma);
}

/** Even levels, shifted. */
export function shiftedEven(shift: number, steps: number): number[] {
  return even(steps).map((sigma) => moved(sigma, shift));
}

/** The lowest noise level that models are trained on. */
const LEAST = 1 / 1000;

/**
 * Levels as diffusers' FlowMatchEulerDiscreteScheduler chooses them if a pipeline names none. They are evenly spaced between 1 and the lowest
 * level, which is shifted already, and then all of them are shifted.
 */
export function shiftedTwice(shift: number, steps: number): number[] {
  const least = moved(LEAST, shift);
  const levels = Array.from({ length: steps }, (_, i) => (i === 0 ? 1 : 1 - (i * (1 - least)) / (steps - 1)));
  return [...levels.map((sigma) => moved(sigma, shift)), 0];
}

/** How levels are shifted towards 1 for images with many tokens. */
export interface Shift {
  /** mu is linear between two numbers of tokens: [tokens, mu]. */
  readonly from: readonly [number, number];
  readonly to: readonly [number, number];
  /** The last level before 0, to which all are stretched. Null for none. */
  readonly terminal: number | null;
}

/** Levels shifted by the number of an image's tokens. */
export function shifted({ from, to, terminal }: Shift, steps: number, tokens: number): number[] {
  return shiftedBy(from[1] + ((to[1] - from[1]) * (tokens - from[0])) / (to[0] - from[0]), steps, terminal);
}

/**
 * As in diffusers' FlowMatchEulerDiscreteScheduler with dynamic shifting: e^mu / (e^mu + (1 / sigma - 1)), and then 1 - (1 - sigma) (1 - terminal) /
 * (1 - sigma_last). The first level is exactly 1, whatever mu is: noisy steps recognize it by that.
 */
function shiftedBy(mu: number, steps: number, terminal: number | null): number[] {
  const levels = even(steps).map((sigma) => (sigma === 0 ? 0 : Math.exp(mu) / (Math.exp(mu) + (1 / sigma - 1))));
  const last = levels[steps - 1];
  if (terminal === null || last === 1) return levels;
  return levels.map((sigma) => (sigma === 0 ? 0 : 1 - ((1 - sigma) * (1 - terminal)) / (1 - last)));
}

/** The lines of mu over the number of tokens that FLUX.2 was measured at, with 10 and with 200 steps: [slope, mu of none]. */
const FLUX2_MU = { 10: [8.73809524e-5, 1.89833333], 200: [0.00016927, 0.45666666] } as const;
/** With more tokens, the number of steps does not matter. */
const FLUX2_TOKENS = 4300;

/** FLUX.2's levels, as diffusers' pipeline shifts them: mu is linear in the number of steps, too. */
export function shiftedBySteps(steps: number, tokens: number): number[] {
  const at = ([slope, none]: readonly [number, number]): number => slope * tokens + none;
  const [few, many] = [at(FLUX2_MU[10]), at(FLUX2_MU[200])];
  const mu = tokens > FLUX2_TOKENS ? many : many + ((many - few) / 190) * (steps - 200);
  return shiftedBy(mu, steps, null);
}

/** By `policy.model_type`. */
export const flowModelTypes = {
  tiny: { sigmas: even },
  // The values in the scheduler_config.json of FLUX.1 and Qwen-Image.
  flux: { sigmas: (steps, tokens) => shifted({ from: [256, 0.5], to: [4096, 1.15], terminal: null }, steps, tokens) },
  flux2: { sigmas: shiftedBySteps },
  // Stable Diffusion 3's and 3.5's.
  sd3: { sigmas: (steps) => shiftedTwice(3, steps) },
  qwen: { sigmas: (steps, tokens) => shifted({ from: [256, 0.5], to: [8192, 0.9], terminal: 0.02 }, steps, tokens) },
} as const satisfies Readonly<Record<string, FlowModelType>>;

export type FlowModelTypeName = keyof typeof flowModelTypes;

/** The types of each architecture. This program makes tiny models as FLUX. */
const typesOf: Readonly<Record<FlowArchitecture, readonly FlowModelTypeName[]>> = {
  flux: ['tiny', 'flux'],
  flux2: ['flux2'],
  qwen_image: ['qwen'],
  sd3: ['sd3'],
};

/** Raises CheckpointError for a model whose architecture has other noise levels than `type`: its images would be noisy or pale. */
export function requireModelType(config: FlowTransformerConfig, type: FlowModelTypeName): void {
  const allowed = typesOf[config.architecture];
  if (allowed.includes(type)) return;
  throw new CheckpointError(`found '${type}' for a ${flowClassOf(config)}; allowed: '${allowed.join("', '")}'`, {
    where: 'policy.model_type',
    next: `Set policy.model_type to '${allowed[allowed.length - 1]}'.`,
  });
}
