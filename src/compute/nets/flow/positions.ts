/**
 * Positions of a sequence of text and image tokens: by rotation on axes (frame, row, column, and in FLUX.2 the place in
 * the text), or as a table that is added (SD3).
 */
import { GraphError } from '../../../core/errors.js';
import { add, gather, mul, reshape, rotary } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import { innerWidth, POSITION_TABLE, type Sd3Config, type RotaryConfig } from './config.js';

/** Height and width of an image in tokens. */
export interface ImageGrid {
  readonly rows: number;
  readonly columns: number;
}

/** An image of rows x columns tokens, next to the given number of text tokens. */
export interface FlowGrid extends ImageGrid {
  readonly textTokens: number;
  /** Whether a second image of the same size follows. Absent means none. */
  readonly hasSecond?: boolean;
  /** Images after the second, each with its own size. Absent means none. */
  readonly further?: readonly ImageGrid[];
}

/** The images of a sequence in order: the generated image, then the reference images. */
export function imagesOf({ rows, columns, hasSecond = false, further = [] }: FlowGrid): readonly ImageGrid[] {
  const own = { rows, columns };
  return [own, ...(hasSecond ? [own] : []), ...further];
}

/** Tokens of the reference images. */
export function referenceTokens(grid: FlowGrid): number {
  const [, ...shown] = imagesOf(grid);
  return shown.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
}

/** One number for each axis of the config. */
type Position = readonly number[];

interface Places {
  readonly text: (token: number, images: readonly ImageGrid[]) => Position;
  /** `frame` is the index of the image, which has the given size. */
  readonly image: (frame: number, row: number, column: number, size: ImageGrid) => Position;
}

const half = (size: number): number => Math.floor(size / 2);

/** The distance of two images of FLUX.2 on the first axis. */
const FRAME_DISTANCE = 10;

const placesOf: Readonly<Record<RotaryConfig['architecture'], Places>> = {
  flux: { text: () => [0, 0, 0], image: (frame, row, column) => [frame, row, column] },
  flux2: {
    text: (token) => [0, 0, 0, token],
    image: (frame, row, column) => [FRAME_DISTANCE * frame, row, column, 0],
  },
  // Images are placed around the origin. Text continues along the diagonal after the furthest lower or right edge.
  qwen_image: {
    text: (token, images) => {
      const place = Math.max(...images.map(({ rows, columns }) => Math.max(half(rows), half(columns)))) + token;
      return [place, place, place];
    },
    image: (frame, row, column, { rows, columns }) => [
      frame,
      row - (rows - half(rows)),
      column - (columns - half(columns)),
    ],
  },
};

/** The base of frequencies if the config does not have it. */
const THETA = 10_000;

/** Angles [tokens, depth / 2] of a sequence: element i of an axis of d elements turns by position * theta^(-2i/d). */
export function rotaryAngles(config: RotaryConfig, grid: FlowGrid): number[][] {
  const { text, image } = placesOf[config.architecture];
  const images = imagesOf(grid);
  const theta = 'rope_theta' in config ? config.rope_theta : THETA;
  const positions = [
    ...Array.from({ length: grid.textTokens }, (_, token) => text(token, images)),
    ...images.flatMap((size, frame) =>
      Array.from({ length: size.rows * size.columns }, (_, i) =>
        image(frame, Math.floor(i / size.columns), i % size.columns, size),
      ),
    ),
  ];
  return positions.map((position) =>
    config.axes_dims_rope.flatMap((depth, axis) =>
      Array.from({ length: depth / 2 }, (_, i) => position[axis] * theta ** (-(2 * i) / depth)),
    ),
  );
}

/** Rotated queries and keys [B, H, T, D], starting at position `first` of the sequence. */
export interface Compared {
  /** Scaled by 1/sqrt(depth). */
  queries(x: Value, first: number): Value;
  keys(x: Value, first: number): Value;
}

/** For a model whose tokens include their positions. */
export function unrotated(depth: number): Compared {
  return { queries: (x) => mul(x, x.graph.scalar(1 / Math.sqrt(depth))), keys: (x) => x };
}

/** Rotates queries and keys. Queries are also scaled by 1/sqrt(depth), so that scores need no separate pass. */
export class FlowRotary implements Compared {
  readonly #queries: readonly [Value, Value];
  readonly #keys: readonly [Value, Value];
  readonly #positions = new Map<string, Value>();

  constructor(
    private readonly graph: Graph,
    config: RotaryConfig,
    grid: FlowGrid,
  ) {
    const angles = rotaryAngles(config, grid);
    const scale = 1 / Math.sqrt(config.attention_head_dim);
    const table = (f: (angle: number) => number, factor: number): Value =>
      graph.constant(
        Float32Array.from(angles.flat(), (angle) => factor * f(angle)),
        [angles.length, config.attention_head_dim / 2],
      );
    this.#queries = [table(Math.cos, scale), table(Math.sin, scale)];
    this.#keys = [table(Math.cos, 1), table(Math.sin, 1)];
  }

  queries(x: Value, first: number): Value {
    return rotary(x, ...this.#queries, this.#positionsOf(x, first), true);
  }

  keys(x: Value, first: number): Value {
    return rotary(x, ...this.#keys, this.#positionsOf(x, first), true);
  }

  #positionsOf(x: Value, first: number): Value {
    const [batch, , length] = x.shape as [number, number, number, number];
    const key = `${first} to ${length}`;
    const known = this.#positions.get(key);
    if (known !== undefined) return known;
    const data = BigInt64Array.from({ length: batch * length }, (_, i) => BigInt(first + (i % length)));
    const made = this.graph.constant(data, [batch, length]);
    this.#positions.set(key, made);
    return made;
  }
}

/**
 * The table [size^2, W] of a new model, initialized as in diffusers: a quarter each of sines and cosines of the column,
 * then of the row. Positions are scaled so that an image of `sample_size` spans the table.
 */
export function positionTable(config: Sd3Config): Float32Array {
  const { pos_embed_max_size: size, sample_size, patch_size } = config;
  const width = innerWidth(config);
  const quarter = width / 4;
  const scale = Math.floor(sample_size / patch_size) / size;
  const table = new Float32Array(size ** 2 * width);
  for (let at = 0; at < size ** 2; at++) {
    [at % size, Math.floor(at / size)].forEach((place, axis) => {
      for (let i = 0; i < quarter; i++) {
        const angle = place * scale * THETA ** (-i / quarter);
        const from = at * width + 2 * axis * quarter + i;
        table[from] = Math.sin(angle);
        table[from + quarter] = Math.cos(angle);
      }
    });
  }
  return table;
}

/**
 * Tokens [B, N, W] of an image of rows x columns, with their positions. Raises GraphError for an image larger than the
 * table.
 */
export function addPositions(
  config: Sd3Config,
  tokens: Value,
  { rows, columns }: { readonly rows: number; readonly columns: number },
): Value {
  const { graph } = tokens;
  const { pos_embed_max_size: size } = config;
  const width = innerWidth(config);
  if (Math.max(rows, columns) > size) {
    throw new GraphError(
      `an image of ${rows} x ${columns} tokens is larger than the model's ${size} x ${size} positions`,
    );
  }
  const table = reshape(graph.parameter(POSITION_TABLE, [1, size ** 2, width]), [size ** 2, width]);
  const [top, left] = [Math.floor((size - rows) / 2), Math.floor((size - columns) / 2)];
  const chosen = BigInt64Array.from({ length: rows * columns }, (_, n) =>
    BigInt((top + Math.floor(n / columns)) * size + left + (n % columns)),
  );
  return add(tokens, reshape(gather(table, graph.constant(chosen, [chosen.length])), [1, rows * columns, width]));
}
