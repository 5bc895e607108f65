/**
 * The conditioning of a sample in addition to its text tokens (noise level, guidance and the text's summary, as one vector),
 * and its effect on tokens (Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023).
 */
import { add, concat, cos, layerNormalization, mul, reshape, sin, slice } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { linear, silu } from '../layers.js';
import type { Adapter } from '../lora.js';
import { type FlowNames, POOLED, SINUSOIDS } from './parameters.js';

/** The factor of noise levels and guidance before their sinusoids. */
const UNIT = 1000;
const LONGEST_PERIOD = 10_000;

export interface Conditions {
  /** [B], in [0, 1]. */
  readonly sigma: Value;
  /** [B]. Null: none. */
  readonly guidance: Value | null;
  /** [B, pooled_projection_dim]. Null: none. */
  readonly pooled: Value | null;
}

/** The layers of a model, as far as modulation needs them. */
export interface Layers {
  readonly names: FlowNames;
  /** Whether they have biases. */
  readonly biases: boolean;
  readonly adapter: Adapter | undefined;
}

/** The sum of two layers each over noise level, guidance and summary: [B, width]. */
export function conditioning(conditions: Conditions, width: number, { names, biases, adapter }: Layers): Value {
  const embed = (x: Value, name: string): Value => {
    const inner = silu(linear(x, `${name}.linear_1`, width, biases, adapter));
    return linear(inner, `${name}.linear_2`, width, biases, adapter);
  };
  const { sigma, guidance, pooled } = conditions;
  const parts = [embed(sinusoids(sigma), names.time)];
  if (guidance !== null) parts.push(embed(sinusoids(guidance), names.guidance));
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

/** Epsilon of every norm over the width. */
const EPS = 1e-6;

/** The conditioning that modulates the tokens of a stream. */
export interface StreamConditioning {
  /** [B, W], a row for each sample. With `clean`: [B + 1, W]. */
  readonly rows: Value;
  /** Index of the first token in each sample that uses the last row instead of its sample's. Null if there is none. */
  readonly clean: number | null;
}

/** A vector of a modulation, for the tokens of a stream. */
export interface Modulation {
  /** [B, 1, W], for the tokens before `clean.from`. */
  readonly own: Value;
  /** The vector [W] for the tokens from `from` on. Null without such tokens. */
  readonly clean: { readonly vector: Value; readonly from: number } | null;
}

/** `count` vectors that a layer computes from a stream's conditioning. */
export function modulations(
  { rows, clean }: StreamConditioning,
  name: string,
  count: number,
  { biases, adapter }: Pick<Layers, 'biases' | 'adapter'>,
): Modulation[] {
  const [found, width] = rows.shape as [number, number];
  const all = linear(rows, name, count * width, biases, adapter);
  const batch = clean === null ? found : found - 1;
  return Array.from({ length: count }, (_, i): Modulation => {
    const vectors = slice(all, 1, i * width, (i + 1) * width);
    return {
      own: reshape(slice(vectors, 0, 0, batch), [batch, 1, width]),
      clean: clean === null ? null : { vector: reshape(slice(vectors, 0, batch, found), [width]), from: clean },
    };
  });
}

/** Tokens [B, T, width], normalized to n along the width and modulated: n (1 + scale) + shift. */
export function modulatedNorm(x: Value, shift: Modulation, scale: Modulation): Value {
  const one = x.graph.scalar(1);
  return inParts(x, [shift, scale], (part, [by, times]) => layerNormalization(part, add(times, one), by, EPS));
}

/** Tokens [B, T, width] times a gate. */
export function gated(x: Value, gate: Modulation): Value {
  return inParts(x, [gate], (part, [by]) => mul(part, by));
}

/** Applies `of` to tokens and their vectors if not all tokens have the same ones. */
function inParts(
  x: Value,
  vectors: readonly Modulation[],
  of: (part: Value, vectors: readonly Value[]) => Value,
): Value {
  const own = vectors.map((vector) => vector.own);
  const clean = vectors.flatMap((vector) => vector.clean ?? []);
  if (clean.length === 0) return of(x, own);
  const [{ from }] = clean;
  return concat(
    [
      of(slice(x, 1, 0, from), own),
      of(
        slice(x, 1, from, x.shape[1]),
        clean.map(({ vector }) => vector),
      ),
    ],
    1,
  );
}
