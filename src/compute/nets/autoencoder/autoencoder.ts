/**
 * The autoencoder of latent diffusion: encodes images as means and log-variances of latents, and decodes latents to
 * images.
 */
import { RandomStream } from '../../../core/random.js';
import type { FloatTensor } from '../../../core/safetensors.js';
import { add, exp, mul, slice, sub, sumAll } from '../../graph/build.js';
import { Graph, type Shape, sizeOf, type Value } from '../../graph/ir.js';
import { silu } from '../layers.js';
import { type AutoencoderConfig, reduction } from './config.js';
import { convolve, upsample, groupNorm, downsample, spatialAttention, residualBlock } from './layers.js';

/** Both [B, latent_channels, H / reduction, W / reduction]. */
export interface LatentDistribution {
  readonly mean: Value;
  readonly logVariance: Value;
}

/** Images [B, in_channels, H, W] in [-1, 1]. H and W are multiples of `reduction`. */
export function encodeImages(config: AutoencoderConfig, images: Value): LatentDistribution {
  const { block_out_channels: channels, norm_num_groups: groups, latent_channels: latent } = config;
  let x = convolve(images, 'encoder.conv_in', channels[0], 3);
  channels.forEach((width, level) => {
    const name = `encoder.down_blocks.${level}`;
    for (let i = 0; i < config.layers_per_block; i++) x = residualBlock(x, `${name}.resnets.${i}`, width, groups);
    if (level < channels.length - 1) x = downsample(x, `${name}.downsamplers.0.conv`);
  });
  x = lowest(config, x, 'encoder.mid_block');
  x = convolve(silu(groupNorm(x, 'encoder.conv_norm_out', groups)), 'encoder.conv_out', 2 * latent, 3);
  if (config.use_quant_conv) x = convolve(x, 'quant_conv', 2 * latent, 1);
  return { mean: slice(x, 1, 0, latent), logVariance: slice(x, 1, latent, 2 * latent) };
}

/**
 * Decodes latents [B, latent_channels, h, w] from the encoder to images [B, out_channels, h * reduction, w *
 * reduction].
 */
export function decodeLatents(config: AutoencoderConfig, latents: Value): Value {
  const { norm_num_groups: groups } = config;
  const channels = [...config.block_out_channels].reverse();
  let x = config.use_post_quant_conv ? convolve(latents, 'post_quant_conv', config.latent_channels, 1) : latents;
  x = lowest(config, convolve(x, 'decoder.conv_in', channels[0], 3), 'decoder.mid_block');
  channels.forEach((width, level) => {
    const name = `decoder.up_blocks.${level}`;
    for (let i = 0; i <= config.layers_per_block; i++) x = residualBlock(x, `${name}.resnets.${i}`, width, groups);
    if (level < channels.length - 1) x = upsample(x, `${name}.upsamplers.0.conv`);
  });
  return convolve(silu(groupNorm(x, 'decoder.conv_norm_out', groups)), 'decoder.conv_out', config.out_channels, 3);
}

/** Two residual blocks, with attention between them if the config has it. */
function lowest(config: AutoencoderConfig, x: Value, name: string): Value {
  const { norm_num_groups: groups, mid_block_add_attention: attention } = config;
  const first = residualBlock(x, `${name}.resnets.0`, x.shape[1], groups);
  const attended = attention ? spatialAttention(first, `${name}.attentions.0`, groups) : first;
  return residualBlock(attended, `${name}.resnets.1`, x.shape[1], groups);
}

/** Names and shapes of all parameters, as diffusers has them. */
export function autoencoderParameters(config: AutoencoderConfig): Map<string, Shape> {
  const graph = new Graph('parameters');
  const side = reduction(config);
  encodeImages(config, graph.input('pictures', [1, config.in_channels, side, side]));
  decodeLatents(config, graph.input('latents', [1, config.latent_channels, 1, 1]));
  return new Map([...graph.parameters].map(([name, { shape }]) => [name, shape]));
}

/** Random weights: kernels and matrices 1/sqrt(fan-in), biases 0, norms 1. Each parameter has its own random stream. */
export function initAutoencoder(config: AutoencoderConfig, seed: number): Map<string, FloatTensor> {
  const out = new Map<string, FloatTensor>();
  for (const [name, shape] of autoencoderParameters(config)) {
    const data = new Float32Array(sizeOf(shape));
    if (shape.length === 1) data.fill(name.endsWith('.bias') ? 0 : 1);
    else {
      const stream = new RandomStream(seed, 'init', name);
      const deviation = 1 / Math.sqrt(sizeOf(shape.slice(1)));
      for (let i = 0; i < data.length; i++) data[i] = deviation * stream.normal();
    }
    out.set(name, { shape, data });
  }
  return out;
}

/** Scalars of a batch. */
export interface AutoencoderLoss {
  readonly loss: Value;
  /** Mean squared error of the images. */
  readonly reconstruction: Value;
  /** Mean square of the encoder's means. */
  readonly meanSquare: Value;
}

/**
 * Mean squared error of images [B, C, H, W] decoded from mean + deviation * noise, plus `klWeight` times the divergence
 * of the latents from a standard normal distribution, sum((mean^2 + variance - log variance - 1) / 2), divided by B C H
 * W (Kingma and Welling, 2014, with the weights of Rombach et al., 2022).
 * @param noise [B, latent_channels, H / reduction, W / reduction]
 */
export function autoencoderLoss(
  config: AutoencoderConfig,
  images: Value,
  noise: Value,
  klWeight: number,
): AutoencoderLoss {
  const { graph } = images;
  const { mean, logVariance } = encodeImages(config, images);
  const deviation = exp(mul(logVariance, graph.scalar(0.5)));
  const error = sub(decodeLatents(config, add(mean, mul(deviation, noise))), images);
  const reconstruction = mul(sumAll(mul(error, error)), graph.scalar(1 / images.size));
  const squares = mul(mean, mean);
  const spread = sub(add(squares, exp(logVariance)), add(logVariance, graph.scalar(1)));
  return {
    loss: add(reconstruction, mul(sumAll(spread), graph.scalar(klWeight / (2 * images.size)))),
    reconstruction,
    meanSquare: mul(sumAll(squares), graph.scalar(1 / mean.size)),
  };
}
