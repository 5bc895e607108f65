/**
 * Emu3's vision tokenizer (Wang et al., "Emu3", 2024): encodes images as codes of a codebook, and decodes codes to
 * images.
 */
import { concat, gather, reshape, slice, transpose } from '../../graph/build.js';
import { Graph, type Shape, type Value } from '../../graph/ir.js';
import { convolve, upsample, downsample } from '../autoencoder/layers.js';
import { CODEBOOK, nearestCodes } from '../image_tokenizer.js';
import { silu } from '../layers.js';
import { type Emu3VisionConfig, type Half, namings, patchOf, timeSteps } from './config.js';
import {
  type Norm,
  spatialAttention,
  plainNorm,
  residualBlock,
  spatialNorm,
  timeBlock,
  timeConvolve,
} from './layers.js';

/**
 * Encodes normalized images [B, 3, H, W], whose sides are multiples of `patchOf`, as vectors [B * h * w, E], place by
 * place.
 */
export function encodeImages(config: Emu3VisionConfig, images: Value): Value {
  const { ch, ch_mult, embed_dim: width } = config;
  const { levels } = namings[config.layout];
  let x = convolve(images, 'encoder.conv_in', ch, 3);
  ch_mult.forEach((times, level) => {
    const name = `${levels.encoder}.${level}`;
    x = blocks(config, x, { name, level, count: config.num_res_blocks, channels: ch * times }, plainNorm);
    if (level < ch_mult.length - 1) x = downsample(x, `${name}.downsample.conv`);
  });
  x = middle(config, x, 'encoder', plainNorm);
  x = convolve(silu(plainNorm(x, 'encoder.norm_out')), 'encoder.conv_out', width, 3);
  // All frames of an image are equal, so up to here only one is computed.
  let clip = Array.from({ length: config.temporal_downsample_factor }, () => x);
  for (let i = 0; i < timeSteps(config); i++) {
    const kernels = { channels: width, frames: 4, stride: 2, side: 3 } as const;
    clip = timeConvolve(clip, `encoder.time_conv.${i}.conv.conv`, kernels).map(silu);
  }
  for (let i = 0; i < config.num_res_blocks; i++) clip = timeBlock(clip, `encoder.time_res_stack.${i}`);
  const [latents] = timeConvolve(clip, 'quant_conv.conv', { channels: width, frames: 3, stride: 1, side: 1 });
  const [batch, , rows, columns] = latents.shape as [number, number, number, number];
  const places = reshape(latents, [batch, width, rows * columns]);
  return reshape(transpose(places, [0, 2, 1]), [batch * rows * columns, width]);
}

/** The nearest code of each vector [N, E]: int64 [N]. */
export function codesOf({ codebook_size, embed_dim }: Emu3VisionConfig, vectors: Value): Value {
  return nearestCodes({ codebook_size, code_dim: embed_dim }, vectors);
}

/** Decodes int64 codes [B, h, w] to normalized images [B, 3, H, W]: the first frame of their clip. */
export function decodeCodes(config: Emu3VisionConfig, codes: Value): Value {
  const { graph } = codes;
  const { ch, ch_mult, embed_dim: width, codebook_size } = config;
  const { levels } = namings[config.layout];
  const [batch, rows, columns] = codes.shape as [number, number, number];
  const found = gather(graph.parameter(CODEBOOK, [codebook_size, width]), reshape(codes, [codes.size]));
  const places = reshape(found, [batch, rows * columns, width]);
  const vectors = reshape(transpose(places, [0, 2, 1]), [batch, width, rows, columns]);
  const [latents] = timeConvolve([vectors], 'post_quant_conv.conv', {
    channels: width,
    frames: 3,
    stride: 1,
    side: 1,
  });
  // One stack reads latents and vectors. No frame depends on a later one, and doubling frames keeps the first one
  // first: the image depends only on it.
  let clip = [concat([latents, vectors], 0)];
  for (let i = 0; i < config.num_res_blocks; i++) clip = timeBlock(clip, `decoder.time_res_stack.${i}`);
  for (let i = 0; i < timeSteps(config); i++) {
    const kernels = { channels: width, frames: 3, stride: 1, side: 3 } as const;
    clip = timeConvolve(clip, `decoder.time_conv.${i}.conv.conv`, kernels).map(silu);
  }
  const [both] = clip;
  const norm = spatialNorm(slice(both, 0, batch, 2 * batch));
  let x = convolve(slice(both, 0, 0, batch), 'decoder.conv_in', ch * ch_mult[ch_mult.length - 1], 3);
  x = middle(config, x, 'decoder', norm);
  for (let level = ch_mult.length - 1; level >= 0; level--) {
    const name = `${levels.decoder}.${level}`;
    const count = config.num_res_blocks + 1;
    x = blocks(config, x, { name, level, count, channels: ch * ch_mult[level] }, norm);
    if (level > 0) x = upsample(x, `${name}.upsample.conv`);
  }
  return convolve(silu(norm(x, 'decoder.norm_out')), 'decoder.conv_out', 3, 3);
}

interface Level {
  readonly name: string;
  readonly level: number;
  readonly count: number;
  readonly channels: number;
}

/** The residual blocks of a level, each followed by attention if the config has it. */
function blocks(config: Emu3VisionConfig, x: Value, { name, level, count, channels }: Level, norm: Norm): Value {
  const attends = config.attn_resolutions.includes(level);
  let made = x;
  for (let i = 0; i < count; i++) {
    made = residualBlock(made, `${name}.block.${i}`, channels, norm);
    if (attends) made = spatialAttention(config, made, `${name}.attn.${i}`, norm);
  }
  return made;
}

/** Two residual blocks, and attention between them. */
function middle(config: Emu3VisionConfig, x: Value, half: Half, norm: Norm): Value {
  const name = `${half}.${namings[config.layout].middle}`;
  const channels = x.shape[1];
  const first = residualBlock(x, `${name}.block_1`, channels, norm);
  const attended = spatialAttention(config, first, `${name}.attn_1`, norm);
  return residualBlock(attended, `${name}.block_2`, channels, norm);
}

/** Names and shapes of all parameters. */
export function emu3VisionParameters(config: Emu3VisionConfig): Map<string, Shape> {
  const graph = new Graph('parameters');
  const side = patchOf(config);
  codesOf(config, encodeImages(config, graph.input('pictures', [1, 3, side, side])));
  decodeCodes(config, graph.input('codes', [1, 1, 1], 'int64'));
  return new Map([...graph.parameters].map(([name, { shape }]) => [name, shape]));
}
