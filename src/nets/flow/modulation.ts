/** How a sample's conditioning acts on its tokens (Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023). */
import { add, matMul, mul, reduceSum, reshape, slice, withGradient } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { linear, standardised, standardisedGradient } from '../layers.js';
import type { Adapter } from '../lora.js';

/** Of all norms over the width. */
const EPS = 1e-6;

/** `count` vectors [B, 1, width] that a layer makes of the conditioning [B, width]. */
export function modulations(conditioning: Value, name: string, count: number, adapter: Adapter | undefined): Value[] {
  const [batch, width] = conditioning.shape as [number, number];
  const all = linear(conditioning, name, count * width, true, adapter);
  return Array.from({ length: count }, (_, i) => reshape(slice(all, 1, i * width, (i + 1) * width), [batch, 1, width]));
}

/**
 * Tokens [B, T, width], standardised to n and modulated by vectors [B, 1, width]: y = n (1 + scale) + shift.
 * dshift = sum_tokens dy, dscale = sum_tokens dy n; means along the width of dy (1 + scale) are products of dy with a vector.
 */
export function modulatedNorm(x: Value, shift: Value, scale: Value): Value {
  const { graph } = x;
  const [batch, , width] = x.shape as [number, number, number];
  const standard = standardised(x, EPS);
  const gain = add(scale, graph.scalar(1));
  return withGradient(add(mul(standard.rows, gain), shift), {
    name: 'modulated_norm',
    inputs: [x, shift, scale],
    gradient: (d) => {
      const t = mul(d, standard.rows);
      const column = reshape(mul(gain, graph.scalar(1 / width)), [batch, width, 1]);
      return [
        standardisedGradient(standard, mul(d, gain), { d: matMul(d, column), product: matMul(t, column) }),
        reduceSum(d, [1]),
        reduceSum(t, [1]),
      ];
    },
  });
}
