/**
 * The vision encoders of Qwen2-VL (Wang et al., 2024), Qwen2.5-VL, Qwen3-VL (Bai et al., 2025) and SmolVLM (Marafioti et
 * al., 2025, with SigLIP's layers), and their connector,
 * over frames in the layout of layout.ts: F frames of W windows of U slots, in rows [F * W * U, width].
 */
import {
  add,
  cast,
  concat,
  gather,
  gelu,
  gemm,
  less,
  mul,
  reduceSum,
  reshape,
  rotary,
  slice,
  sub,
  transpose,
  withGradient,
} from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import type { DecoderConfig } from '../decoder/config.js';
import { type BlockWrapper, embedding, geluExact, layerNorm, linear, quickGelu, rmsNorm, swiglu } from '../layers.js';
import type { Adapter } from '../lora.js';
import { kernelShape, layersOf, type Merger, mergersOf, type VisionConfig } from './config.js';
import { type FrameShape, patchWidth, type ImageShape, CORNERS } from './layout.js';

/** Epsilon of every norm in the encoder. */
const EPS = 1e-6;

/** The inputs of the encoder. */
export interface EncoderInputs {
  /** [F * W * U, values of a patch]. Values in unused slots have no effect on others. */
  readonly pixels: Value;
  /** Cosines and sines of the patches' angles [F * W * U, depth of a head / 2]. Null for an encoder without rotation. */
  readonly rotation: { readonly cos: Value; readonly sin: Value } | null;
  /** [F, W * U]: 0 on patches, a large negative number on open slots. */
  readonly padding: Value;
  /**
   * The learned positions of the patches as mixtures of rows of their table: the rows, int64 [F * W * U * CORNERS], and
   * their shares [F * W * U, CORNERS, 1]. Null for an encoder without a table.
   */
  readonly positions: { readonly rows: Value; readonly shares: Value } | null;
}

export function encoderInputs(
  graph: Graph,
  config: VisionConfig,
  { frames, windows, slots }: FrameShape,
): EncoderInputs {
  const rows = frames * windows * slots;
  const half = config.width / config.num_heads / 2;
  return {
    pixels: graph.input('pixels', [rows, patchWidth(config)]),
    rotation: layersOf[config.family].rotates
      ? { cos: graph.input('patch_cos', [rows, half]), sin: graph.input('patch_sin', [rows, half]) }
      : null,
    padding: graph.input('patch_padding', [frames, windows * slots]),
    positions:
      config.num_position_embeddings === null
        ? null
        : {
            rows: graph.input('patch_positions', [rows * CORNERS], 'int64'),
            shares: graph.input('patch_shares', [rows, CORNERS, 1]),
          },
  };
}

/** Which rows attend to each other: a batch of frames, or of windows. */
interface Scope {
  readonly batch: number;
  readonly length: number;
  /** [batch, 1, 1, length] */
  readonly mask: Value;
  /** int64 [batch, length]: the row of each. */
  readonly rows: Value;
}

function norm(x: Value, name: string, { family }: VisionConfig): Value {
  return layersOf[family].norm === 'rms' ? rmsNorm(x, name, EPS) : layerNorm(x, name, EPS);
}

/**
 * Patches to rows [F * W * U, width * mergers], before the connector. Each row of the last block is followed by its rows
 * of the blocks in `deepstack_visual_indexes`.
 */
export function encode(
  config: VisionConfig,
  inputs: EncoderInputs,
  { frames, windows, slots }: FrameShape,
  adapter?: Adapter,
  wrap: BlockWrapper = (_name, x, build) => build(x),
): Value {
  const { graph } = inputs.pixels;
  const { width, family } = config;
  const { names, patchBias, merger } = layersOf[family];
  const kernels = graph.parameter(`${names.patches}.weight`, kernelShape(config));
  const bias = patchBias ? { bias: graph.parameter(`${names.patches}.bias`, [width]) } : {};
  const scopeOf = (batch: number, length: number): Scope => ({
    batch,
    length,
    mask: reshape(inputs.padding, [batch, 1, 1, length]),
    rows: graph.constant(
      BigInt64Array.from({ length: batch * length }, (_, i) => BigInt(i)),
      [batch, length],
    ),
  });
  const whole = scopeOf(frames, windows * slots);
  const windowed = config.windows === null ? whole : scopeOf(frames * windows, slots);
  const full = new Set(config.windows?.fullatt_block_indexes);
  // The kernels do not overlap: the convolution is one product.
  let rows = gemm(inputs.pixels, reshape(kernels, [width, patchWidth(config)]), { transB: true, ...bias });
  rows = withPositions(rows, config, inputs);
  const found: Value[] = [];
  for (let i = 0; i < config.depth; i++) {
    const scope = full.has(i) ? whole : windowed;
    rows = wrap(`visual.blocks.${i}`, rows, (x) => block(config, i, x, inputs, scope, adapter));
    if (config.deepstack_visual_indexes.includes(i)) found.push(rows);
  }
  if ('only' in merger) rows = norm(rows, merger.norm, config);
  return concat([rows, ...found], 1);
}

/** Adds the learned positions, if the encoder has any. */
function withPositions(rows: Value, config: VisionConfig, { positions }: EncoderInputs): Value {
  const { num_position_embeddings: places, width, family } = config;
  if (positions === null || places === null) return rows;
  const corners = embedding(rows.graph, layersOf[family].names.positions, positions.rows, places, width);
  const shares = mul(reshape(corners, [rows.shape[0], CORNERS, width]), positions.shares);
  return add(rows, reshape(reduceSum(shares, [1]), rows.shape));
}

function block(
  config: VisionConfig,
  index: number,
  x: Value,
  inputs: EncoderInputs,
  scope: Scope,
  adapter: Adapter | undefined,
): Value {
  const { names } = layersOf[config.family];
  const name = `${names.blocks}${index}`;
  const normed = (rows: Value, which: 0 | 1): Value => norm(rows, `${name}.${names.norms[which]}`, config);
  return x.graph.scope(`visual.${index}`, () => {
    const attended = add(x, attention(config, `${name}.${names.attention}`, normed(x, 0), inputs, scope, adapter));
    return add(attended, feedForward(config, `${name}.mlp`, normed(attended, 1), adapter));
  });
}

function attention(
  { width, num_heads, family }: VisionConfig,
  name: string,
  x: Value,
  { rotation }: EncoderInputs,
  { batch, length, mask, rows }: Scope,
  adapter: Adapter | undefined,
): Value {
  const { projections, names } = layersOf[family];
  const depth = width / num_heads;
  const share = (3 / projections.length) * width;
  const layers = projections.map((layer) => linear(x, `${name}.${layer}`, share, true, adapter));
  const all = concat(layers, 1);
  const heads = (part: number): Value =>
    transpose(
      reshape(slice(all, 1, part * width, (part + 1) * width), [batch, length, num_heads, depth]),
      [0, 2, 1, 3],
    );
  const turned = (part: number): Value =>
    rotation === null ? heads(part) : rotary(heads(part), rotation.cos, rotation.sin, rows);
  const queries = mul(turned(0), x.graph.scalar(1 / Math.sqrt(depth)));
  const mixed = attendAll(queries, { keys: turned(1), values: heads(2), mask });
  const joined = reshape(transpose(mixed, [0, 2, 1, 3]), [batch * length, width]);
  return linear(joined, `${name}.${names.output}`, width, true, adapter);
}

function feedForward(config: VisionConfig, name: string, x: Value, adapter: Adapter | undefined): Value {
  const { width, inner } = config;
  const { feedForward: layers } = layersOf[config.family];
  if (layers === 'swiglu') {
    const [gate, up] = ['gate_proj', 'up_proj'].map((layer) => linear(x, `${name}.${layer}`, inner, true, adapter));
    return linear(swiglu(gate, up), `${name}.down_proj`, width, true, adapter);
  }
  const hidden = linear(x, `${name}.${layers.first}`, inner, true, adapter);
  return linear(activations[layers.activation](hidden), `${name}.${layers.second}`, width, true, adapter);
}

const activations = { quick_gelu: quickGelu, gelu_tanh: gelu } as const;

/**
 * The connector: squares of rows [N, width * mergers], one after another, to tokens [N / merge^2, out_width * mergers].
 * Each merger reads its part of the width.
 */
export function merge(config: VisionConfig, rows: Value, adapter?: Adapter): Value {
  const { width } = config;
  const tokens = mergersOf(config).map((merger, i) =>
    mergeOne(config, merger, slice(rows, 1, i * width, (i + 1) * width), adapter),
  );
  return concat(tokens, 1);
}

function mergeOne(config: VisionConfig, { name, normalizes }: Merger, rows: Value, adapter?: Adapter): Value {
  const { width, spatial_merge_size, out_width, family } = config;
  const { merger } = layersOf[family];
  const square = spatial_merge_size ** 2 * width;
  const squares = [rows.size / square, square];
  if ('only' in merger) {
    return rows.graph.scope('connector', () => linear(reshape(rows, squares), merger.only, out_width, false, adapter));
  }
  const normalize = (x: Value): Value => norm(x, `${name}${merger.norm}`, config);
  return rows.graph.scope(name.slice(0, -1), () => {
    const normalized = normalizes === 'rows' ? reshape(normalize(rows), squares) : normalize(reshape(rows, squares));
    const hidden = linear(normalized, `${name}${merger.first}`, square, true, adapter);
    return linear(geluExact(hidden), `${name}${merger.second}`, out_width, true, adapter);
  });
}

/** Rows of tokens of one prompt's images. */
export function tokenRows(shape: ImageShape, { spatial_merge_size: side }: VisionConfig): number {
  if (shape.from !== 'pixels') return shape.tokens;
  const { frames, windows, slots } = shape.frames;
  return (frames * windows * slots) / side ** 2;
}

/** The image tokens of the given number of prompts, [prompts * rows of each, width of the decoder * mergers]. */
function imageTokens(
  graph: Graph,
  config: DecoderConfig & { readonly vision: VisionConfig },
  prompts: number,
  shape: ImageShape,
  wrap?: BlockWrapper,
): Value {
  const { vision, hidden_size, adapter } = config;
  const mergers = mergersOf(vision).length;
  if (shape.from === 'pixels') {
    const frames = { ...shape.frames, frames: prompts * shape.frames.frames };
    return merge(vision, encode(vision, encoderInputs(graph, vision, frames), frames, adapter, wrap), adapter);
  }
  const rows = prompts * shape.tokens;
  if (shape.from === 'tokens') return graph.input('picture_tokens', [rows, hidden_size * mergers]);
  const features = graph.input('picture_features', [rows * vision.spatial_merge_size ** 2, vision.width * mergers]);
  return merge(vision, features, adapter);
}

/** The rows of words and images. */
export interface SeenRows {
  /** [N, width], the input of the decoder's first block. */
  readonly rows: Value;
  /** [N, width] each: what is added to the output of the decoder's first blocks, 0 for words (DeepStack). */
  readonly added: readonly Value[];
}

/**
 * Inserts the images' tokens [M, width] into the words [N, width]. The graph gets two inputs. `picture_index`, int64 [N],
 * is the index of each row into words and images together. `picture_places`, int64 [M], is the row of each image token, or
 * N for none.
 */
export function withImageTokens(
  words: Value,
  config: DecoderConfig & { readonly vision: VisionConfig },
  prompts: number,
  shape: ImageShape,
  wrap?: BlockWrapper,
): SeenRows {
  const { graph } = words;
  const [rows, width] = words.shape as [number, number];
  const tokens = imageTokens(graph, config, prompts, shape, wrap);
  const [images, ...deeper] = mergersOf(config.vision).map((_, i) => slice(tokens, 1, i * width, (i + 1) * width));
  const index = graph.input('picture_index', [rows], 'int64');
  const places = graph.input('picture_places', [images.shape[0]], 'int64');
  const isWord = reshape(cast(less(index, graph.constant(BigInt64Array.of(BigInt(rows)), [1])), 'float32'), [rows, 1]);
  const isImage = sub(graph.scalar(1), isWord);
  /** The gradients of image tokens, from those of rows. A token without a row reads a row of zeros. */
  const ofImages = (d: Value): Value =>
    gather(concat([d, graph.constant(new Float32Array(width), [1, width])], 0), places);
  return {
    rows: withGradient(gather(concat([words, images], 0), index), {
      name: 'pictures',
      inputs: [words, images],
      gradient: (d) => [mul(d, isWord), ofImages(d)],
    }),
    added: deeper.map((level) =>
      withGradient(mul(gather(concat([words, level], 0), index), isImage), {
        name: 'deeper pictures',
        inputs: [level],
        gradient: (d) => [ofImages(d)],
      }),
    ),
  };
}
