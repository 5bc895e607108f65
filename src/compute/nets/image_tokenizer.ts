/**
 * A vector-quantized autoencoder over square patches (van den Oord et al., 2017). Each patch is encoded separately as
 * the nearest vector of a codebook, so that one vision token represents one patch. It learns from pixels alone.
 */
import { RandomStream } from '../../core/random.js';
import type { FloatTensor } from '../../core/safetensors.js';
import {
  add,
  argMin,
  gather,
  gemm,
  mul,
  reduceSumSquare,
  reshape,
  sigmoid,
  sub,
  withGradient,
} from '../graph/build.js';
import type { Graph, Shape, Value } from '../graph/ir.js';
import { sizeOf } from '../graph/ir.js';
import { linear, silu } from './layers.js';
import { meanSquaredError } from './losses.js';

export interface ImageTokenizerConfig {
  readonly codebook_size: number;
  /** Side of a patch in pixels. */
  readonly patch: number;
  readonly hidden: number;
  readonly code_dim: number;
  readonly commitment_weight: number;
}

export const CODEBOOK = 'quantize.embedding.weight';

/** Numbers in one patch: RGB, rows from the top. */
export function patchSize(config: ImageTokenizerConfig): number {
  return 3 * config.patch * config.patch;
}

export function imageTokenizerParameters(config: ImageTokenizerConfig): Map<string, Shape> {
  const pixels = patchSize(config);
  return new Map<string, Shape>([
    ['encoder.fc1.weight', [config.hidden, pixels]],
    ['encoder.fc1.bias', [config.hidden]],
    ['encoder.fc2.weight', [config.code_dim, config.hidden]],
    ['encoder.fc2.bias', [config.code_dim]],
    [CODEBOOK, [config.codebook_size, config.code_dim]],
    ['decoder.fc1.weight', [config.hidden, config.code_dim]],
    ['decoder.fc1.bias', [config.hidden]],
    ['decoder.fc2.weight', [pixels, config.hidden]],
    ['decoder.fc2.bias', [pixels]],
  ]);
}

/** Random weights: matrices 1/sqrt(fan-in), biases 0, codes standard normal. */
export function initImageTokenizer(config: ImageTokenizerConfig, seed: number): Map<string, FloatTensor> {
  const out = new Map<string, FloatTensor>();
  for (const [name, shape] of imageTokenizerParameters(config)) {
    const data = new Float32Array(sizeOf(shape));
    const std = name.endsWith('bias') ? 0 : name === CODEBOOK ? 1 : 1 / Math.sqrt(shape.at(-1)!);
    const stream = new RandomStream(seed, 'init', name);
    for (let i = 0; i < data.length; i++) data[i] = std * stream.normal();
    out.set(name, { shape, data });
  }
  return out;
}

/** Patches [N, pixels] in [0, 1] to vectors [N, code_dim]. */
export function encodePatches(config: ImageTokenizerConfig, patches: Value): Value {
  const centered = sub(mul(patches, patches.graph.scalar(2)), patches.graph.scalar(1));
  return linear(silu(linear(centered, 'encoder.fc1', config.hidden, true)), 'encoder.fc2', config.code_dim, true);
}

/** The nearest code of each vector: int64 [N]. */
export function nearestCodes(config: Pick<ImageTokenizerConfig, 'codebook_size' | 'code_dim'>, vectors: Value): Value {
  const codebook = vectors.graph.parameter(CODEBOOK, [config.codebook_size, config.code_dim]);
  const lengths = reshape(reduceSumSquare(codebook, [1]), [1, config.codebook_size]);
  const distance = sub(lengths, gemm(vectors, codebook, { transB: true, alpha: 2 }));
  return reshape(argMin(distance, 1), [vectors.shape[0]]);
}

/** Vectors [N, code_dim] to patches [N, pixels] in [0, 1]. */
export function decodeVectors(config: ImageTokenizerConfig, vectors: Value): Value {
  const hidden = silu(linear(vectors, 'decoder.fc1', config.hidden, true));
  return sigmoid(linear(hidden, 'decoder.fc2', patchSize(config), true));
}

/** Codes int64 [N] to patches [N, pixels] in [0, 1]. */
export function decodeCodes(config: ImageTokenizerConfig, codes: Value): Value {
  return decodeVectors(config, gather(codes.graph.parameter(CODEBOOK, [config.codebook_size, config.code_dim]), codes));
}

export interface AutoencoderLoss {
  readonly loss: Value;
  /** Mean squared error over pixels in [0, 1]. */
  readonly reconstruction: Value;
  readonly codes: Value;
  readonly vectors: Value;
}

/**
 * |x - decode(e)|^2 + |stop(z) - e|^2 + commitment |z - stop(e)|^2, where e is the code nearest to z = encode(x). The
 * decoder's gradient passes unchanged to z.
 */
export function autoencoderLoss(config: ImageTokenizerConfig, patches: Value): AutoencoderLoss {
  const { graph } = patches;
  const z = encodePatches(config, patches);
  const codes = nearestCodes(config, z);
  const e = gather(graph.parameter(CODEBOOK, [config.codebook_size, config.code_dim]), codes);
  const straightThrough = withGradient(mul(e, graph.scalar(1)), {
    name: 'straight_through',
    inputs: [z],
    gradient: (d) => [d],
  });
  const reconstruction = meanSquaredError(decodeVectors(config, straightThrough), patches);
  const codebookLoss = meanSquaredError(e, stopGradient(graph, z));
  const commitment = meanSquaredError(z, stopGradient(graph, e));
  const loss = add(add(reconstruction, codebookLoss), mul(graph.scalar(config.commitment_weight), commitment));
  return { loss, reconstruction, codes, vectors: z };
}

function stopGradient(graph: Graph, x: Value): Value {
  return withGradient(mul(x, graph.scalar(1)), { name: 'stop_gradient', inputs: [], gradient: () => [] });
}
