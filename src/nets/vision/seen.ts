/** Pictures within the decoder's graphs: the values at the places of their placeholders. */
import { cast, concat, gather, less, mul, reshape, withGradient } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { BlockWrapper } from '../block.js';
import type { DecoderConfig } from '../decoder/config.js';
import type { VisionConfig } from './config.js';
import { encode, encoderInputs, merge } from './encoder.js';
import type { FrameShape } from './layout.js';

/**
 * Where a graph starts for the pictures of each prompt. The steps before are frozen, and computed once for each picture: `tokens` are finished,
 * `features` go through the connector, pixels through encoder and connector.
 */
export type PictureShape =
  | { readonly from: 'tokens' | 'features'; readonly tokens: number }
  | { readonly from: 'pixels'; readonly frames: FrameShape };

/** Rows of tokens that the pictures of one prompt take. */
export function tokenRows(shape: PictureShape, { spatial_merge_size: side }: VisionConfig): number {
  if (shape.from !== 'pixels') return shape.tokens;
  const { frames, windows, slots } = shape.frames;
  return (frames * windows * slots) / side ** 2;
}

/** The picture tokens of this many prompts, [prompts * rows of each, width of the decoder]. */
function pictureTokens(
  graph: Graph,
  config: DecoderConfig & { readonly vision: VisionConfig },
  prompts: number,
  shape: PictureShape,
  wrap?: BlockWrapper,
): Value {
  const { vision, hidden_size, adapter } = config;
  if (shape.from === 'pixels') {
    const frames = { ...shape.frames, frames: prompts * shape.frames.frames };
    return merge(vision, encode(vision, encoderInputs(graph, vision, frames), frames, adapter, wrap), adapter);
  }
  const rows = prompts * shape.tokens;
  if (shape.from === 'tokens') return graph.input('picture_tokens', [rows, hidden_size]);
  const features = graph.input('picture_features', [rows * vision.spatial_merge_size ** 2, vision.width]);
  return merge(vision, features, adapter);
}

/**
 * Words [N, width] with the pictures' tokens [M, width] in their places. Inputs of the graph: `picture_index`, int64 [N], says of each row which
 * row of words and pictures together stands there; `picture_places`, int64 [M], where each token of a picture stands, N for nowhere.
 */
export function withPictureTokens(
  words: Value,
  config: DecoderConfig & { readonly vision: VisionConfig },
  prompts: number,
  shape: PictureShape,
  wrap?: BlockWrapper,
): Value {
  const { graph } = words;
  const [rows, width] = words.shape as [number, number];
  const pictures = pictureTokens(graph, config, prompts, shape, wrap);
  const index = graph.input('picture_index', [rows], 'int64');
  const places = graph.input('picture_places', [pictures.shape[0]], 'int64');
  const isWord = reshape(cast(less(index, graph.constant(BigInt64Array.of(BigInt(rows)), [1])), 'float32'), [rows, 1]);
  return withGradient(gather(concat([words, pictures], 0), index), {
    name: 'pictures',
    inputs: [words, pictures],
    gradient: (d) => {
      // A token that stands nowhere reads a row of zeros.
      const none = graph.constant(new Float32Array(width), [1, width]);
      return [mul(d, isWord), gather(concat([d, none], 0), places)];
    },
  });
}
