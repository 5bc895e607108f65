/**
 * The autoencoder of Qwen-Image, with the names of diffusers' `AutoencoderKLQwenImage`. It is a video autoencoder: its
 * convolutions also cover the two frames before, which are zero for an image, so only the last slice of each kernel
 * matters. Layers over time have no effect on an image.
 */
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import { add, mul, reciprocal, reduceSumSquare, reshape, slice, sqrt, transpose } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { silu } from '../layers.js';
import { convolve, upsample, downsample } from './layers.js';

export const QWEN_IMAGE_CLASS = 'AutoencoderKLQwenImage';

const size = z.int().positive();
const MEANS = [
  ...[-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922],
  ...[-0.9497, 0.2503, -0.2921],
];
const DEVIATIONS = [
  ...[2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253],
  ...[2.8251, 1.916],
];
const schema = z.strictObject({
  base_dim: size.default(96),
  z_dim: size.default(16),
  dim_mult: z.array(size).min(2).default([1, 2, 4, 4]),
  num_res_blocks: size.default(2),
  attn_scales: z.array(z.number()).max(0, 'is not supported; allowed: []').default([]),
  temperal_downsample: z.array(z.boolean()).default([false, true, true]),
  /** Only trains. */
  dropout: z.number().default(0),
  input_channels: z.literal(3).default(3),
  latents_mean: z.array(z.number()).default(MEANS),
  latents_std: z.array(z.number().positive()).default(DEVIATIONS),
});
export type QwenImageConfig = z.output<typeof schema>;

/** Reads its `config.json`. Raises CheckpointError, naming `where`, for unsupported settings. */
export function readQwenImage(json: object, where: string): QwenImageConfig {
  // Keys with an underscore name the class and its version.
  const parsed = schema.safeParse(Object.fromEntries(Object.entries(json).filter(([key]) => !key.startsWith('_'))));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError([...issue.path, issue.message].join(': '), { where });
  }
  const { z_dim, dim_mult, temperal_downsample: times, latents_mean, latents_std } = parsed.data;
  if (times.length !== dim_mult.length - 1) {
    throw new CheckpointError(`temperal_downsample has ${times.length} values, dim_mult ${dim_mult.length}`, {
      where,
      next: 'It has one value fewer than dim_mult.',
    });
  }
  for (const [name, { length }] of Object.entries({ latents_mean, latents_std })) {
    if (length !== z_dim) throw new CheckpointError(`${name} has ${length} values, and z_dim is ${z_dim}`, { where });
  }
  return parsed.data;
}

/** Encodes images [B, 3, H, W] in [-1, 1] as means of latents [B, z_dim, H / r, W / r], r = 2^(levels - 1). */
export function encodeQwenImage(config: QwenImageConfig, images: Value): Value {
  const { base_dim, dim_mult, num_res_blocks, z_dim } = config;
  let x = convolve(images, 'encoder.conv_in', base_dim, 3);
  let block = 0;
  dim_mult.forEach((factor, level) => {
    for (let i = 0; i < num_res_blocks; i++) x = residual(x, `encoder.down_blocks.${block++}`, base_dim * factor);
    if (level < dim_mult.length - 1) x = downsample(x, `encoder.down_blocks.${block++}.resample.1`);
  });
  x = silu(norm(lowest(x, 'encoder.mid_block'), 'encoder.norm_out'));
  x = convolve(convolve(x, 'encoder.conv_out', 2 * z_dim, 3), 'quant_conv', 2 * z_dim, 1);
  return slice(x, 1, 0, z_dim);
}

/** Decodes latents [B, z_dim, h, w] to images [B, 3, h r, w r]. */
export function decodeQwenImage(config: QwenImageConfig, latents: Value): Value {
  const { base_dim, dim_mult, num_res_blocks, z_dim } = config;
  const widths = dim_mult.map((factor) => base_dim * factor).reverse();
  let x = convolve(convolve(latents, 'post_quant_conv', z_dim, 1), 'decoder.conv_in', widths[0], 3);
  x = lowest(x, 'decoder.mid_block');
  widths.forEach((width, level) => {
    const name = `decoder.up_blocks.${level}`;
    for (let i = 0; i <= num_res_blocks; i++) x = residual(x, `${name}.resnets.${i}`, width);
    if (level < widths.length - 1) x = upsample(x, `${name}.upsamplers.0.resample.1`, width / 2);
  });
  return convolve(silu(norm(x, 'decoder.norm_out')), 'decoder.conv_out', 3, 3);
}

function lowest(x: Value, name: string): Value {
  const first = residual(x, `${name}.resnets.0`, x.shape[1]);
  return residual(spatialAttention(first, `${name}.attentions.0`), `${name}.resnets.1`, x.shape[1]);
}

function residual(x: Value, name: string, channels: number): Value {
  const first = convolve(silu(norm(x, `${name}.norm1`)), `${name}.conv1`, channels, 3);
  const second = convolve(silu(norm(first, `${name}.norm2`)), `${name}.conv2`, channels, 3);
  return add(x.shape[1] === channels ? x : convolve(x, `${name}.conv_shortcut`, channels, 1), second);
}

/** Keeps the norm of a place without any value from 0. */
const TINY = 1e-24;

/** Each place's channels, scaled to a mean square of 1, times a factor a channel. */
function norm(x: Value, name: string): Value {
  const { graph } = x;
  const channels = x.shape[1];
  const length = sqrt(add(reduceSumSquare(x, [1]), graph.scalar(TINY)));
  const scaled = mul(mul(x, reciprocal(length)), graph.scalar(Math.sqrt(channels)));
  return mul(scaled, reshape(graph.parameter(`${name}.gamma`, [channels]), [channels, 1, 1]));
}

function spatialAttention(x: Value, name: string): Value {
  const [batch, channels, height, width] = x.shape as [number, number, number, number];
  const projected = convolve(norm(x, `${name}.norm`), `${name}.to_qkv`, 3 * channels, 1);
  const part = (index: number): Value => {
    const planes = slice(projected, 1, index * channels, (index + 1) * channels);
    return transpose(reshape(planes, [batch, channels, height * width]), [0, 2, 1]);
  };
  const queries = mul(part(0), x.graph.scalar(1 / Math.sqrt(channels)));
  const mixed = attendAll(queries, { keys: part(1), values: part(2), mask: null });
  const planes = reshape(transpose(mixed, [0, 2, 1]), x.shape);
  return add(x, convolve(planes, `${name}.proj`, channels, 1));
}
