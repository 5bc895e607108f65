/** Layers over images [N, C, H, W]. */
import {
  add,
  conv,
  expand,
  mul,
  reciprocal,
  reduceMean,
  reduceSumSquare,
  reshape,
  sqrt,
  sub,
  transpose,
  withGradient,
} from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { linear, silu } from '../layers.js';

/** Epsilon of every norm. */
const EPS = 1e-6;

/** A convolution with square kernels that keeps the size of the image. */
export function convolve(x: Value, name: string, channels: number, kernel: 1 | 3): Value {
  const pad = (kernel - 1) / 2;
  return conv(x, ...kernelsOf(x, name, channels, kernel, { pads: [pad, pad, pad, pad] }));
}

function kernelsOf(
  x: Value,
  name: string,
  channels: number,
  kernel: number,
  options: Parameters<typeof conv>[2],
): [Value, Parameters<typeof conv>[2]] {
  const kernels = x.graph.parameter(`${name}.weight`, [channels, x.shape[1], kernel, kernel]);
  return [kernels, { ...options, bias: x.graph.parameter(`${name}.bias`, [channels]) }];
}

/** Halves both sides. Padding is zero, and only at the right and lower edge, as weights of diffusers expect. */
export function downsample(x: Value, name: string): Value {
  return conv(x, ...kernelsOf(x, name, x.shape[1], 3, { strides: [2, 2], pads: [0, 0, 1, 1] }));
}

/** Repeats every element twice in rows and columns, then convolves. */
export function upsample(x: Value, name: string, made = x.shape[1]): Value {
  const [batch, channels, rows, columns] = x.shape as [number, number, number, number];
  const apart = reshape(x, [batch, channels, rows, 1, columns, 1]);
  const repeated = reshape(expand(apart, [batch, channels, rows, 2, columns, 2]), [
    batch,
    channels,
    2 * rows,
    2 * columns,
  ]);
  return convolve(repeated, name, made, 3);
}

/**
 * Group normalization (Wu and He, 2018): mean 0 and variance 1 over each group of channels of each image, then a weight
 * and a bias per channel.
 */
export function groupNorm(x: Value, name: string, groups: number): Value {
  const [batch, channels, rows, columns] = x.shape as [number, number, number, number];
  const [places, inGroup] = [rows * columns, channels / groups];
  const normalized = standardized(reshape(x, [batch * groups, inGroup * places]));
  const vector = (part: string): Value => reshape(x.graph.parameter(`${name}.${part}`, [channels]), [channels, 1]);
  const perChannel = reshape(normalized, [batch, channels, places]);
  return reshape(add(mul(perChannel, vector('weight')), vector('bias')), x.shape);
}

/** n = (x - mean) r over each row, r = 1 / sqrt(variance + eps): dx = r (dn - mean(dn) - n mean(n dn)). */
function standardized(x: Value): Value {
  const { graph } = x;
  const centered = sub(x, reduceMean(x, [1]));
  const variance = mul(reduceSumSquare(centered, [1]), graph.scalar(1 / x.shape[1]));
  const r = reciprocal(sqrt(add(variance, graph.scalar(EPS))));
  const n = mul(centered, r);
  return withGradient(mul(n, graph.scalar(1)), {
    name: 'group_norm',
    inputs: [x],
    gradient: (d) => [mul(sub(sub(d, reduceMean(d, [1])), mul(n, reduceMean(mul(n, d), [1]))), r)],
  });
}

/** x, projected if the channels change, plus two convolutions of x, each after a norm. */
export function residualBlock(x: Value, name: string, channels: number, groups: number): Value {
  const first = convolve(silu(groupNorm(x, `${name}.norm1`, groups)), `${name}.conv1`, channels, 3);
  const second = convolve(silu(groupNorm(first, `${name}.norm2`, groups)), `${name}.conv2`, channels, 3);
  return add(x.shape[1] === channels ? x : convolve(x, `${name}.conv_shortcut`, channels, 1), second);
}

/** x plus single-head attention of each place to all places. */
export function spatialAttention(x: Value, name: string, groups: number): Value {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const places = height * width;
  const normalized = reshape(groupNorm(x, `${name}.group_norm`, groups), [batch, channels, places]);
  const rows = reshape(transpose(normalized, [0, 2, 1]), [batch * places, channels]);
  const project = (layer: string, of: Value): Value => linear(of, `${name}.${layer}`, channels, true);
  const apart = (of: Value): Value => reshape(of, [batch, places, channels]);
  const queries = mul(project('to_q', rows), x.graph.scalar(1 / Math.sqrt(channels)));
  const mixed = attendAll(apart(queries), {
    keys: apart(project('to_k', rows)),
    values: apart(project('to_v', rows)),
    mask: null,
  });
  const out = apart(project('to_out.0', reshape(mixed, [batch * places, channels])));
  return add(x, reshape(transpose(out, [0, 2, 1]), x.shape));
}
