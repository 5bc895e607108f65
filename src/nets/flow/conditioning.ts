/** The conditioning of a sample besides its text tokens: noise level, guidance and the text's summary, as one vector. */
import { add, concat, cos, mul, reshape, sin } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { linear, silu } from '../layers.js';
import type { Adapter } from '../lora.js';
import { GUIDANCE, POOLED, TIME } from './names.js';
import { SINUSOIDS } from './parameters.js';

/** The factor of noise levels and guidance before their sinusoids. */
const UNIT = 1000;
const LONGEST_PERIOD = 10_000;

export interface Conditions {
  /** [B], in [0, 1]. */
  readonly sigma: Value;
  /** [B]; null: none. */
  readonly guidance: Value | null;
  /** [B, pooled_projection_dim]; null: none. */
  readonly pooled: Value | null;
}

/** The sum of two layers each over noise level, guidance and summary: [B, width]. */
export function conditioning(conditions: Conditions, width: number, adapter: Adapter | undefined): Value {
  const embed = (x: Value, name: string): Value => {
    const inner = silu(linear(x, `${name}.linear_1`, width, true, adapter));
    return linear(inner, `${name}.linear_2`, width, true, adapter);
  };
  const { sigma, guidance, pooled } = conditions;
  const parts = [embed(sinusoids(sigma), TIME)];
  if (guidance !== null) parts.push(embed(sinusoids(guidance), GUIDANCE));
  if (pooled !== null) parts.push(embed(pooled, POOLED));
  return parts.reduce(add);
}

/** [B] to cosines, then sines, of 1000 x at 128 frequencies that fall from 1 towards 1/10,000: [B, 256]. */
function sinusoids(x: Value): Value {
  const { graph } = x;
  const count = SINUSOIDS / 2;
  // Weights of diffusers were trained with exponents of float32, whose rounding is 1e-4 in the angles of large guidance.
  const step = Math.fround(-Math.log(LONGEST_PERIOD));
  const frequencies = Float32Array.from({ length: count }, (_, i) => Math.exp(Math.fround(step * i) / count));
  const scaled = reshape(mul(x, graph.scalar(UNIT)), [x.size, 1]);
  const angles = mul(scaled, graph.constant(frequencies, [1, count]));
  return concat([cos(angles), sin(angles)], 1);
}
