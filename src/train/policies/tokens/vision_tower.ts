/**
 * Computes the inputs of a decoder with a vision encoder: images processed by the frozen parts, their positions, and
 * rotary angles of all columns.
 */
import { LRUCache } from 'lru-cache';
import { InternalError, must } from '../../../core/errors.js';
import { poolFor, type SessionOptions } from '../../../compute/onnx/session.js';
import type { TensorData } from '../../../compute/onnx/tensors.js';
import type { Graph, Value } from '../../../compute/graph/ir.js';
import { KEPT_BYTES, type VisionInput, tokensOf, writePatches } from '../../../models/images/vision_input.js';
import { hasVision, type VisionDecoderConfig } from '../../../compute/nets/decoder/config.js';
import { type BatchShape, type PromptShape, rowsOf } from '../../../compute/nets/decoder/inputs.js';
import { layersOf, mergersOf, partOf } from '../../../compute/nets/vision/config.js';
import { encode, encoderInputs, merge, tokenRows } from '../../../compute/nets/vision/encoder.js';
import type { ImageShape } from '../../../compute/nets/vision/layout.js';
import {
  AngleTables,
  axesOf,
  CORNERS,
  frameShape,
  type FrameShape,
  patchAngles,
  patchPlaces,
  patchRows,
  patchWidth,
  type Positions,
  positionsOf,
} from '../../../compute/nets/vision/layout.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';
import { PADDING, roundUp } from './batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import { type PolicyModel, trainedWeights } from '../../../models/adapters/policy_model.js';

type Feeds = Record<string, TensorData>;

/** Opens a model's vision encoder. Null for a model without one. */
export function openVisionTower(model: PolicyModel, session: SessionOptions): VisionTower | null {
  const { config } = model;
  return hasVision(config) ? new VisionTower(model, config, session) : null;
}

export class VisionTower {
  /** The stage at which the graphs start, which is after all frozen parts. */
  readonly from: ImageShape['from'];
  readonly #encode: SessionCache;
  /**
   * Outputs of the frozen parts for recent images. The keys are separate objects, so that the cache does not keep
   * pixels in memory.
   */
  readonly #made: LRUCache<object, Promise<Float32Array>>;
  readonly #names = new WeakMap<VisionInput, object>();
  readonly #positions = new WeakMap<TokenPrompt, Positions>();

  constructor(
    private readonly model: PolicyModel,
    private readonly config: VisionDecoderConfig,
    session: SessionOptions,
    keptBytes = KEPT_BYTES,
  ) {
    this.#made = new LRUCache({ maxSize: keptBytes });
    const trained = new Set([...trainedWeights(model).keys()].map(partOf));
    this.from = trained.has('mm_vision') ? 'pixels' : trained.has('mm_mlp') ? 'features' : 'tokens';
    this.#encode = new SessionCache('images', session, poolFor(session));
  }

  /** A shape with room for the images of each of these prompts. */
  shape(among: readonly TokenPrompt[]): ImageShape {
    if (this.from === 'pixels') {
      return { from: 'pixels', frames: frameShape(among.map(imagesOf), this.config.vision) };
    }
    const tokens = among.map((prompt) =>
      imagesOf(prompt).reduce((sum, { grid }) => sum + tokensOf(grid, this.config.vision), 0),
    );
    return { from: this.from, tokens: roundUp(Math.max(...tokens)) };
  }

  /**
   * Inputs for whole sequences, or for prompts only if the shape has no answers. `rowOf` gives the row of each prompt
   * column. Default: the column itself.
   */
  async feeds(
    prompts: readonly TokenPrompt[],
    shape: PromptShape & Partial<BatchShape>,
    rowOf?: Int32Array,
  ): Promise<Feeds> {
    const images = must(shape.images, 'the shape of images');
    const { answersPerPrompt = 0, answerColumns = 0 } = shape;
    const rows = rowsOf({ ...shape, answersPerPrompt, answerColumns });
    return {
      ...(await this.#contents(prompts, shape.prompts, images)),
      ...this.#places(prompts, rows.prompts + rows.answers, shape, images, (column) => rowOf?.[column] ?? column),
      ...this.#angles(prompts, shape.prompts, shape.promptColumns, answerColumns),
    };
  }

  /** Inputs for decoding: rotary angles of the answers' columns. */
  stepFeeds(prompts: readonly TokenPrompt[], shape: BatchShape): Feeds {
    return this.#angles(prompts, shape.prompts, 0, shape.answerColumns);
  }

  async dispose(): Promise<void> {
    await this.#encode.dispose();
  }

  /** Number of values per image token at the stage where the graphs start. */
  get #tokenWidth(): number {
    const { vision, hidden_size } = this.config;
    const width = this.from === 'tokens' ? hidden_size : vision.spatial_merge_size ** 2 * vision.width;
    return width * mergersOf(vision).length;
  }

  /** The graphs' inputs for the images. */
  async #contents(prompts: readonly TokenPrompt[], count: number, shape: ImageShape): Promise<Feeds> {
    if (shape.from === 'pixels') {
      const frames = { ...shape.frames, frames: count * shape.frames.frames };
      return patchFeeds(prompts.map(imagesOf), frames, shape.frames.frames, this.config);
    }
    const width = this.#tokenWidth;
    const out = new Float32Array(count * shape.tokens * width);
    for (const [p, prompt] of prompts.entries()) {
      let at = p * shape.tokens * width;
      for (const image of imagesOf(prompt)) {
        const made = await this.#frozen(image);
        out.set(made, at);
        at += made.length;
      }
    }
    return { [shape.from === 'tokens' ? 'picture_tokens' : 'picture_features']: out };
  }

  /** The frozen parts' output for an image, with rows in Hugging Face's order. */
  #frozen(image: VisionInput): Promise<Float32Array> {
    const name = this.#names.get(image) ?? {};
    this.#names.set(image, name);
    const known = this.#made.get(name);
    if (known !== undefined) return known;
    const made = this.#compute(image);
    made.catch(() => this.#made.delete(name));
    const values = tokensOf(image.grid, this.config.vision) * this.#tokenWidth;
    this.#made.set(name, made, { size: values * Float32Array.BYTES_PER_ELEMENT });
    return made;
  }

  async #compute(image: VisionInput): Promise<Float32Array> {
    const { vision, adapter } = this.config;
    const frames = frameShape([[image]], vision);
    const build = (graph: Graph): Record<string, Value> => {
      const rows = encode(vision, encoderInputs(graph, vision, frames), frames, adapter);
      return { made: this.from === 'tokens' ? merge(vision, rows, adapter) : rows };
    };
    const feeds = patchFeeds([[image]], frames, frames.frames, this.config);
    const run = await this.#encode.use(frames, build, (session) => session.run(feeds, this.model.weights));
    const made = run['made'] as Float32Array;
    const rows = patchRows(image, vision, frames, 0);
    // After merging, there is one row per square of patches.
    const perRow = this.from === 'tokens' ? vision.spatial_merge_size ** 2 : 1;
    const width = made.length / ((frames.frames * frames.windows * frames.slots) / perRow);
    const out = new Float32Array((rows.length / perRow) * width);
    for (let i = 0; i < rows.length; i += perRow) {
      const from = (rows[i] / perRow) * width;
      out.set(made.subarray(from, from + width), (i / perRow) * width);
    }
    return out;
  }

  /** The index of each row into words and images together, and the position of each image token. */
  #places(
    prompts: readonly TokenPrompt[],
    rows: number,
    { prompts: count, promptColumns }: PromptShape,
    shape: ImageShape,
    rowOf: (column: number) => number,
  ): Feeds {
    const { vision } = this.config;
    const perPrompt = tokenRows(shape, vision);
    const index = BigInt64Array.from({ length: rows }, (_, i) => BigInt(i));
    const places = new BigInt64Array(count * perPrompt).fill(BigInt(rows));
    prompts.forEach((prompt, p) => {
      const { ids } = prompt;
      const tokens = imageRows(imagesOf(prompt), shape, this.config);
      const first = (p + 1) * promptColumns - (ids.length - 1);
      let next = 0;
      ids.forEach((id, i) => {
        if (id !== vision.image_token_id && id !== vision.video_token_id) return;
        if (i === ids.length - 1) throw new InternalError('a prompt ends with an image');
        const token = p * perPrompt + tokens[next++];
        const row = rowOf(first + i);
        index[row] = BigInt(rows + token);
        places[token] = BigInt(row);
      });
      if (next !== tokens.length) throw new InternalError(`${tokens.length} tokens of images in ${next} places`);
    });
    return { picture_index: index, picture_places: places };
  }

  /**
   * Angles of the last `promptColumns` prompt columns without the last token, followed by those of the answers, which
   * begin with that token.
   */
  #angles(prompts: readonly TokenPrompt[], count: number, promptColumns: number, answerColumns: number): Feeds {
    const { mrope_section, mrope_interleaved = false } = this.config;
    const columns = promptColumns + answerColumns;
    const tables = new AngleTables(this.config, axesOf(mrope_section, mrope_interleaved), count * columns);
    prompts.forEach((prompt, p) => {
      const { axes, next } = this.#positionsOf(prompt);
      const last = prompt.ids.length - 1;
      for (let column = 0; column < columns; column++) {
        const token = column - promptColumns + last;
        if (token < 0) continue;
        tables.set(p * columns + column, (axis) => (token <= last ? axes[axis][token] : next + token - last - 1));
      }
    });
    return { rotary_cos: tables.cos, rotary_sin: tables.sin };
  }

  #positionsOf(prompt: TokenPrompt): Positions {
    const known = this.#positions.get(prompt);
    if (known !== undefined) return known;
    const made = positionsOf(prompt.ids, imagesOf(prompt), this.config.vision);
    this.#positions.set(prompt, made);
    return made;
  }
}

function imagesOf({ images = [] }: TokenPrompt): readonly VisionInput[] {
  return images;
}

/** Rows of a prompt's image tokens within the space for a prompt's images, in the order of their placeholders. */
function imageRows(images: readonly VisionInput[], shape: ImageShape, { vision }: VisionDecoderConfig): Int32Array {
  const perSquare = vision.spatial_merge_size ** 2;
  if (shape.from !== 'pixels') {
    const count = images.reduce((sum, { grid }) => sum + tokensOf(grid, vision), 0);
    return Int32Array.from({ length: count }, (_, i) => i);
  }
  let frame = 0;
  const out: number[] = [];
  for (const image of images) {
    const rows = patchRows(image, vision, shape.frames, frame);
    for (let i = 0; i < rows.length; i += perSquare) out.push(rows[i] / perSquare);
    frame += image.grid.steps;
  }
  return Int32Array.from(out);
}

/** The encoder's inputs for lists of images. Each list has room for `perList` frames. */
function patchFeeds(
  lists: readonly (readonly VisionInput[])[],
  shape: FrameShape,
  perList: number,
  { vision }: VisionDecoderConfig,
): Feeds {
  const { frames, windows, slots } = shape;
  const rows = frames * windows * slots;
  const half = vision.width / vision.num_heads / 2;
  const pixels = new Float32Array(rows * patchWidth(vision));
  const padding = new Float32Array(rows).fill(PADDING);
  const rotation = layersOf[vision.family].rotates
    ? { patch_cos: new Float32Array(rows * half).fill(1), patch_sin: new Float32Array(rows * half) }
    : null;
  const { num_position_embeddings: positions, spatial_merge_size } = vision;
  const learned =
    positions === null
      ? null
      : { patch_positions: new BigInt64Array(rows * CORNERS), patch_shares: new Float32Array(rows * CORNERS) };
  lists.forEach((images, list) => {
    let frame = list * perList;
    for (const image of images) {
      const places = patchRows(image, vision, shape, frame);
      writePatches(image, vision, pixels, (patch) => places[patch]);
      places.forEach((row, patch) => {
        padding[row] = 0;
        if (rotation !== null) {
          patchAngles(patch, image.grid, vision).forEach((angle, i) => {
            rotation.patch_cos[row * half + i] = Math.cos(angle);
            rotation.patch_sin[row * half + i] = Math.sin(angle);
          });
        }
        if (positions === null || learned === null) return;
        patchPlaces(patch, image.grid, positions, spatial_merge_size).forEach(({ row: point, share }, i) => {
          learned.patch_positions[row * CORNERS + i] = BigInt(point);
          learned.patch_shares[row * CORNERS + i] = share;
        });
      });
      frame += image.grid.steps;
    }
  });
  return { pixels, patch_padding: padding, ...rotation, ...learned };
}
