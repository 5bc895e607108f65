/** Rotary positions on three axes (frame, row, column) of a sequence of text tokens and image tokens, in this order. */
import { mul, rotary } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { TurnedConfig } from './config.js';

/** Height and width of a picture in tokens. */
export interface PictureGrid {
  readonly rows: number;
  readonly columns: number;
}

/** A picture of rows x columns tokens, beside this many text tokens. */
export interface FlowGrid extends PictureGrid {
  readonly textTokens: number;
  /** Whether a second picture of the same size follows; absent means none. */
  readonly hasSecond?: boolean;
  /** Pictures after the second, each of a size of its own; absent means none. */
  readonly further?: readonly PictureGrid[];
}

/** The pictures of a sequence, in their order: the one that is painted, and those that are looked at. */
export function picturesOf({ rows, columns, hasSecond = false, further = [] }: FlowGrid): readonly PictureGrid[] {
  const own = { rows, columns };
  return [own, ...(hasSecond ? [own] : []), ...further];
}

/** Tokens of the pictures that are looked at. */
export function shownTokens(grid: FlowGrid): number {
  const [, ...shown] = picturesOf(grid);
  return shown.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
}

type Position = readonly [frame: number, row: number, column: number];

interface Places {
  readonly text: (token: number, pictures: readonly PictureGrid[]) => Position;
  /** `frame` counts pictures, of which this one has this size. */
  readonly image: (frame: number, row: number, column: number, size: PictureGrid) => Position;
}

const half = (size: number): number => Math.floor(size / 2);

const placesOf: Readonly<Record<TurnedConfig['architecture'], Places>> = {
  flux: { text: () => [0, 0, 0], image: (frame, row, column) => [frame, row, column] },
  // Images lie around the origin, text goes on along the diagonal beyond the furthest lower or right edge.
  qwen_image: {
    text: (token, pictures) => {
      const place = Math.max(...pictures.map(({ rows, columns }) => Math.max(half(rows), half(columns)))) + token;
      return [place, place, place];
    },
    image: (frame, row, column, { rows, columns }) => [
      frame,
      row - (rows - half(rows)),
      column - (columns - half(columns)),
    ],
  },
};

const THETA = 10_000;

/** Angles [tokens, depth / 2] of a sequence: element i of an axis of d elements turns by position * theta^(-2i/d). */
export function rotaryAngles(config: TurnedConfig, grid: FlowGrid): number[][] {
  const { text, image } = placesOf[config.architecture];
  const pictures = picturesOf(grid);
  const positions = [
    ...Array.from({ length: grid.textTokens }, (_, token) => text(token, pictures)),
    ...pictures.flatMap((size, frame) =>
      Array.from({ length: size.rows * size.columns }, (_, i) =>
        image(frame, Math.floor(i / size.columns), i % size.columns, size),
      ),
    ),
  ];
  return positions.map((position) =>
    config.axes_dims_rope.flatMap((depth, axis) =>
      Array.from({ length: depth / 2 }, (_, i) => position[axis] * THETA ** (-(2 * i) / depth)),
    ),
  );
}

/** Queries and keys [B, H, T, D] as attention compares them, of which the first stands at `first` of the sequence. */
export interface Compared {
  /** Scaled by 1/sqrt(depth). */
  queries(x: Value, first: number): Value;
  keys(x: Value, first: number): Value;
}

/** Of a model whose tokens hold their positions. */
export function unturned(depth: number): Compared {
  return { queries: (x) => mul(x, x.graph.scalar(1 / Math.sqrt(depth))), keys: (x) => x };
}

/** Turns queries and keys; queries are also scaled by 1/sqrt(depth), so that scores need no pass of their own. */
export class FlowRotary implements Compared {
  readonly #queries: readonly [Value, Value];
  readonly #keys: readonly [Value, Value];
  readonly #positions = new Map<string, Value>();

  constructor(
    private readonly graph: Graph,
    config: TurnedConfig,
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
