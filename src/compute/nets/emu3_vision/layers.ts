/** Layers of Emu3's vision tokenizer over images and frames [N, C, H, W]. */
import { add, concat, conv, div, mul, reshape, slice, sqrt, sub, transpose } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { convolve, groupNorm } from '../autoencoder/layers.js';
import { attendAll } from '../decoder/attention.js';
import { StreamHeads } from '../flow/heads.js';
import { silu } from '../layers.js';
import { sumOf } from '../lora.js';
import { type Emu3VisionConfig, namings, NORM_GROUPS } from './config.js';

/** A norm of images. Its parameters have this name. */
export type Norm = (x: Value, name: string) => Value;

/** Group normalization. */
export const plainNorm: Norm = (x, name) => groupNorm(x, name, NORM_GROUPS);

/**
 * Normalization by groups of channels, followed by a factor and a summand for each channel and place. These depend on
 * the codes' vectors [N, E, h, w] (Zheng et al., "MoVQ", 2022), each of which covers a square of places.
 */
export function spatialNorm(vectors: Value): Norm {
  return (x, name) => {
    const [batch, channels, rows, columns] = x.shape as [number, number, number, number];
    const [high, wide] = [vectors.shape[2], vectors.shape[3]];
    // A 1x1 convolution gives the same before and after vectors are repeated, and is much cheaper before.
    const each = (part: string): Value =>
      reshape(convolve(vectors, `${name}.${part}`, channels, 1), [batch, channels, high, 1, wide, 1]);
    const squares = [batch, channels, high, rows / high, wide, columns / wide];
    const normalized = reshape(groupNorm(x, `${name}.norm_layer`, NORM_GROUPS), squares);
    return reshape(add(mul(normalized, each('conv_y')), each('conv_b')), x.shape);
  };
}

/** x, projected if the channels change, plus two convolutions of x, each after a norm. */
export function residualBlock(x: Value, name: string, channels: number, norm: Norm): Value {
  const first = convolve(silu(norm(x, `${name}.norm1`)), `${name}.conv1`, channels, 3);
  const second = convolve(silu(norm(first, `${name}.norm2`)), `${name}.conv2`, channels, 3);
  return add(x.shape[1] === channels ? x : convolve(x, `${name}.nin_shortcut`, channels, 1), second);
}

/** x plus attention of each place to all places. */
export function spatialAttention(
  { layout, attention_heads: heads }: Emu3VisionConfig,
  x: Value,
  name: string,
  norm: Norm,
): Value {
  const { graph } = x;
  const { projections, normOf, matrix } = namings[layout];
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const places = height * width;
  const depth = channels / heads;
  const normalized = reshape(norm(x, normOf(name)), [batch, channels, places]);
  const rows = reshape(transpose(normalized, [0, 2, 1]), [batch * places, channels]);
  const project = (part: keyof typeof projections, of: Value): Value => {
    const layer = `${name}.${projections[part]}`;
    const table = reshape(graph.parameter(`${layer}.weight`, matrix(channels)), [channels, channels]);
    return sumOf([{ rows: of, table, scale: 1 }], graph.parameter(`${layer}.bias`, [channels]));
  };
  const streams = new StreamHeads(graph, { batch, heads, depth }, places);
  const mixed = attendAll(streams.split(mul(project('q', rows), graph.scalar(1 / Math.sqrt(depth)))), {
    keys: streams.split(project('k', rows)),
    values: streams.split(project('v', rows)),
    mask: null,
  });
  const out = reshape(project('out', streams.join(mixed, 0)), [batch, places, channels]);
  return add(x, reshape(transpose(out, [0, 2, 1]), x.shape));
}

/** Number of zero frames before the first, so that no frame depends on a later one. */
const BEFORE = 2;

/** The kernels of a convolution over frames. */
export interface TimeKernels {
  readonly channels: number;
  /** Number of frames that a kernel covers, and its stride. */
  readonly frames: number;
  readonly stride: number;
  /** Side of the square of positions that it covers in each frame. */
  readonly side: 1 | 3;
}

/** A convolution over a clip's frames, each [N, C, H, W], which keeps their size. */
export function timeConvolve(
  clip: readonly Value[],
  name: string,
  { channels, frames, stride, side }: TimeKernels,
): Value[] {
  const [{ graph, shape }] = clip;
  const [batch, inner, height, width] = shape as [number, number, number, number];
  const kernels = graph.parameter(`${name}.weight`, [channels, inner, frames, side, side]);
  const bias = graph.parameter(`${name}.bias`, [channels]);
  const edge = (side - 1) / 2;
  const count = Math.floor((clip.length + BEFORE - frames) / stride) + 1;
  return Array.from({ length: count }, (_, i) => {
    const from = i * stride - BEFORE;
    // Frames of zeros add nothing, so they and their part of the kernels are left out.
    const skipped = Math.max(0, -from);
    const read = clip.slice(from + skipped, from + frames);
    const stacked = concat(
      read.map((frame) => reshape(frame, [batch, inner, 1, height, width])),
      2,
    );
    const flat = inner * read.length;
    return conv(
      reshape(stacked, [batch, flat, height, width]),
      reshape(slice(kernels, 2, skipped, frames), [channels, flat, side, side]),
      { pads: [edge, edge, edge, edge], bias },
    );
  });
}

/** Epsilon of the norms over frames. */
const EPS = 1e-5;

/** Batch normalization with the running mean and variance of each channel from training. */
function countedNorm(x: Value, name: string): Value {
  const channels = x.shape[1];
  const each = (part: string): Value => reshape(x.graph.parameter(`${name}.${part}`, [channels]), [1, channels, 1, 1]);
  const deviation = sqrt(add(each('running_var'), x.graph.scalar(EPS)));
  return add(mul(div(sub(x, each('running_mean')), deviation), each('weight')), each('bias'));
}

/** Each frame, and two convolutions over all of them, each after a norm. */
export function timeBlock(clip: readonly Value[], name: string): Value[] {
  const kernels: TimeKernels = { channels: clip[0].shape[1], frames: 3, stride: 1, side: 3 };
  const layer = (frames: readonly Value[], i: 1 | 2): Value[] =>
    timeConvolve(
      frames.map((frame) => silu(countedNorm(frame, `${name}.norm${i}`))),
      `${name}.conv${i}.conv`,
      kernels,
    );
  const made = layer(layer(clip, 1), 2);
  return clip.map((frame, i) => add(frame, made[i]));
}
