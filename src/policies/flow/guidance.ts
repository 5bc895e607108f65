/**
 * Classifier-free guidance (Ho and Salimans, 2022): v_0 + g (v - v_0), where v_0 is the model's velocity without words and style. Computed on numbers
 * while sampling and in the training graph; the two have to agree.
 */
import { add, div, mul, reduceSum, sqrt, sub } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { velocityWidth, type FlowTransformerConfig } from '../../nets/flow/config.js';

/** Keeps the division finite for velocities of zero, which stay zero. */
const LEAST_SQUARE = 1e-12;

/** Qwen-Image rescales each guided token to its unguided length, as its pipeline in diffusers does. */
function keepsLength({ architecture }: FlowTransformerConfig): boolean {
  return architecture === 'qwen_image';
}

/** Guidance for velocities [N, C] as numbers. */
export function guidedNumbers(
  v: Float32Array,
  without: Float32Array,
  scale: number,
  config: FlowTransformerConfig,
): Float32Array {
  const out = v.map((one, at) => without[at] + scale * (one - without[at]));
  if (!keepsLength(config)) return out;
  const width = velocityWidth(config);
  for (let from = 0; from < out.length; from += width) {
    const token = out.subarray(from, from + width);
    const length = squares(v.subarray(from, from + width)) / squares(token);
    token.forEach((one, c) => (token[c] = one * Math.sqrt(length)));
  }
  return out;
}

function squares(numbers: Float32Array): number {
  return numbers.reduce((sum, one) => sum + one ** 2, LEAST_SQUARE);
}

/** Guidance for velocities [B, N, C] in a graph. If the velocity without words is an input, it carries no gradient. */
export function guidedValues(v: Value, without: Value, scale: number, config: FlowTransformerConfig): Value {
  const out = add(without, mul(v.graph.scalar(scale), sub(v, without)));
  if (!keepsLength(config)) return out;
  const squared = (x: Value): Value => add(reduceSum(mul(x, x), [2]), x.graph.scalar(LEAST_SQUARE));
  return mul(out, sqrt(div(squared(v), squared(out))));
}
