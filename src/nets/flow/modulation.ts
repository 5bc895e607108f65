/** How a sample's conditioning acts on its tokens (Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023). */
import { add, layerNormalization, reshape, slice } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { linear } from '../layers.js';
import type { Adapter } from '../lora.js';

/** Epsilon of every norm over the width. */
const EPS = 1e-6;

/** `count` vectors [B, 1, width] that a layer makes of the conditioning [B, width]. */
export function modulations(conditioning: Value, name: string, count: number, adapter: Adapter | undefined): Value[] {
  const [batch, width] = conditioning.shape as [number, number];
  const all = linear(conditioning, name, count * width, true, adapter);
  return Array.from({ length: count }, (_, i) => reshape(slice(all, 1, i * width, (i + 1) * width), [batch, 1, width]));
}

/** Tokens [B, T, width], normalised to n along the width and modulated by vectors [B, 1, width]: n (1 + scale) + shift. */
export function modulatedNorm(x: Value, shift: Value, scale: Value): Value {
  return layerNormalization(x, add(scale, x.graph.scalar(1)), shift, EPS);
}
