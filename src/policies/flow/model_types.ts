/** What the families of flow models do each in their own way before the transformer sees anything. */

export interface FlowModelType {
  /** Noise levels from 1 down to 0, steps + 1 of them, for a picture of so many tokens. */
  sigmas(steps: number, tokens: number): number[];
}

/** steps levels that fall evenly from 1, and 0. */
function even(steps: number): number[] {
  return Array.from({ length: steps + 1 }, (_, i) => 1 - i / steps);
}

/**
 * Moves levels towards 1 for pictures of many tokens, as diffusers' FlowMatchEulerDiscreteScheduler with dynamic shifting does:
 * e^mu / (e^mu + 1 / sigma - 1), mu on a straight line from 0.5 at 256 tokens to 1.15 at 4096.
 */
function shifted(steps: number, tokens: number): number[] {
  const mu = 0.5 + (0.65 * (tokens - 256)) / 3840;
  return even(steps).map((sigma) => (sigma === 0 ? 0 : Math.exp(mu) / (Math.exp(mu) + 1 / sigma - 1)));
}

/** By `policy.model_type`. */
export const flowModelTypes = {
  tiny: { sigmas: even },
  flux: { sigmas: shifted },
  qwen: { sigmas: shifted },
} as const satisfies Readonly<Record<string, FlowModelType>>;

export type FlowModelTypeName = keyof typeof flowModelTypes;
