/** Rows of a micro-batch: one noisy image each, with its conditioning. Also applies guidance to their velocities. */
import { InternalError } from '../../../core/errors.js';
import type { TensorData } from '../../../compute/onnx/tensors.js';
import {
  embedsGuidance,
  pooledWidth,
  velocityWidth,
  type FlowTransformerConfig,
} from '../../../compute/nets/flow/config.js';
import type { FlowShape } from '../../../compute/nets/flow/transformer.js';
import { PADDING } from '../tokens/batch.js';
import type { FlowCondition, KeptImage } from './batch.js';
import { add, div, mul, reduceSum, sqrt, sub } from '../../../compute/graph/build.js';
import type { Value } from '../../../compute/graph/ir.js';

export interface FlowRow {
  readonly condition: FlowCondition;
  readonly sigma: number;
  /** [N, C] */
  readonly x: Float32Array;
}

/**
 * Cuts rows into micro-batches of `size` rows of one shape, in the order of the shapes' first rows, keeping the order within a shape. A micro-batch's
 * composition depends only on the rows.
 */
export function microBatches<R extends { readonly condition: FlowCondition }>(
  rows: readonly R[],
  config: FlowTransformerConfig,
  size: number,
): { readonly shape: FlowShape; readonly at: readonly number[] }[] {
  const byShape = new Map<string, { readonly shape: FlowShape; readonly at: number[] }>();
  rows.forEach(({ condition }, i) => {
    const { rows: high, columns, text, kept, further, textTokens: ownTokens } = condition;
    const textTokens = text.length / config.joint_attention_dim;
    const shape: FlowShape = {
      batch: size,
      rows: high,
      columns,
      textTokens,
      ...(kept === undefined ? {} : { hasSecond: true }),
      ...(further === undefined
        ? {}
        : { further: further.map(({ rows: r, columns: c }) => ({ rows: r, columns: c })) }),
      ...(ownTokens === undefined ? {} : { hasPadding: true }),
    };
    const key = JSON.stringify(shape);
    const known = byShape.get(key) ?? { shape, at: [] };
    byShape.set(key, known);
    known.at.push(i);
  });
  return [...byShape.values()].flatMap(({ shape, at }) =>
    Array.from({ length: Math.ceil(at.length / size) }, (_, b) => ({ shape, at: at.slice(b * size, (b + 1) * size) })),
  );
}

/** The model's inputs for at most `shape.batch` rows. Missing rows repeat the first. Models that embed the guidance get it as an input. */
export function modelFeeds(
  rows: readonly FlowRow[],
  config: FlowTransformerConfig,
  shape: FlowShape,
  guidance: number | null,
): Record<string, TensorData> {
  const { batch } = shape;
  const tokens = shape.rows * shape.columns;
  const channels = velocityWidth(config);
  const hidden = new Float32Array(batch * tokens * config.in_channels);
  const sigma = new Float32Array(batch);
  const full = Array.from({ length: batch }, (_, b) => rows[b] ?? rows[0]);
  full.forEach(({ condition: { context }, x, sigma: level }, b) => {
    sigma[b] = level;
    const behind = config.in_channels - channels;
    if (x.length !== tokens * channels || context.length !== tokens * behind) {
      throw new InternalError(
        `${x.length} latents and ${context.length} numbers beside them for ${tokens} tokens of ${channels} + ${behind}`,
      );
    }
    for (let n = 0; n < tokens; n++) {
      const at = (b * tokens + n) * config.in_channels;
      hidden.set(x.subarray(n * channels, (n + 1) * channels), at);
      hidden.set(context.subarray(n * behind, (n + 1) * behind), at + channels);
    }
  });
  const stacked = (of: (condition: FlowCondition) => Float32Array | null, what: string): Float32Array => {
    const arrays = full.map(({ condition }) => {
      const found = of(condition);
      if (found === null) throw new InternalError(`a condition without ${what}`);
      return found;
    });
    return concatArrays(arrays);
  };
  return {
    hidden,
    ...(shape.hasSecond === true ? { second: stacked(shownOf, 'what stays') } : {}),
    sigma,
    text: stacked(({ text }) => text, 'text'),
    ...(shape.hasPadding === true ? { text_padding: stacked((condition) => paddingOf(condition, shape), 'text') } : {}),
    ...(takesPooled(config) ? { pooled: stacked(({ pooled }) => pooled, 'pooled text') } : {}),
    ...(takesGuidance(config) ? { guidance: new Float32Array(batch).fill(guidance ?? 1) } : {}),
    ...(config.ip_adapter === null
      ? {}
      : { image_features: stacked(({ imageFeatures }) => imageFeatures, 'image features') }),
  };
}

/** The tokens [M, C] of all reference images. Null without a part that stays. */
function shownOf({ kept, further = [] }: FlowCondition): Float32Array | null {
  if (kept === undefined) return null;
  if (further.length === 0) return kept.shown;
  const parts = [kept, ...further];
  const out = new Float32Array(parts.reduce((sum, { shown }) => sum + shown.length, 0));
  let at = 0;
  for (const { shown } of parts) {
    out.set(shown, at);
    at += shown.length;
  }
  return out;
}

/** [T]: 0 on tokens, PADDING after them. */
function paddingOf({ textTokens: ownTokens }: FlowCondition, { textTokens }: FlowShape): Float32Array {
  return new Float32Array(textTokens).fill(PADDING, ownTokens ?? textTokens);
}

/** Whether the model takes the guidance scale as an input, instead of being evaluated twice. */
export function takesGuidance(config: FlowTransformerConfig): boolean {
  return embedsGuidance(config);
}

export function takesPooled(config: FlowTransformerConfig): boolean {
  return pooledWidth(config) > 0;
}

/** The condition without words and without style: the same image, with `without` in place of the text if the condition has it. */
export function unconditional(condition: FlowCondition): FlowCondition {
  const zeros = (array: Float32Array): Float32Array => new Float32Array(array.length);
  const { text, pooled, imageFeatures, without } = condition;
  return {
    ...condition,
    text: zeros(text),
    ...without,
    pooled: pooled === null ? null : (without?.pooled ?? zeros(pooled)),
    imageFeatures: imageFeatures === null ? null : zeros(imageFeatures),
  };
}

/** The weight of each element of a row, 1 on average: elements that stay have weight 0. */
export function countedOf({ painted }: KeptImage): Float32Array {
  const count = painted.reduce((sum, one) => sum + one, 0);
  return painted.map((one) => (one * painted.length) / count);
}

/** Concatenates arrays of equal length. */
export function concatArrays(arrays: readonly Float32Array[]): Float32Array {
  const { length } = arrays[0];
  const out = new Float32Array(arrays.length * length);
  arrays.forEach((array, i) => out.set(array, i * length));
  return out;
}

/** A copy of one of `parts` equal parts of an array. */
export function partOf(array: Float32Array, part: number, parts: number): Float32Array {
  const length = array.length / parts;
  return array.slice(part * length, (part + 1) * length);
}

/*
 * Classifier-free guidance (Ho and Salimans, 2022): v_0 + g (v - v_0) with the model's velocity v_0 without words and style. Sampling computes it on
 * numbers, learning in a graph, and the two have to agree.
 */

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
