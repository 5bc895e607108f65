/**
 * The layout of patches in the encoder's arrays. Patches attend to each other within one time step, and in most blocks of
 * Qwen2.5-VL within a window of it. So a batch is [frames, windows, slots]. Each time step of an image is a frame with a
 * fixed number of windows, and each window has a fixed number of slots. Unused slots of smaller images are masked. The
 * patches that become one token are adjacent within a window.
 */
import { type RotarySettings, rotationOf } from '../decoder/rope.js';
import { layersOf, type PatchSizes, type VisionConfig } from './config.js';

/**
 * Patches of an image or clip: time steps (1 for an image), rows and columns. Rows and columns are multiples of
 * `spatial_merge_size`.
 */
export interface PatchGrid {
  readonly steps: number;
  readonly rows: number;
  readonly columns: number;
}

/** The facts about an image or a clip that the network needs in addition to its pixels. */
export interface PlacedImage {
  readonly kind: 'image' | 'video';
  readonly grid: PatchGrid;
  /** Seconds from one time step to the next, which the temporal positions of Qwen2.5-VL follow. 0 for an image. */
  readonly secondsPerStep: number;
}

/** Values of one patch: channels x frames x rows x columns of pixels. */
export function patchWidth({ patch_size, temporal_patch_size }: PatchSizes): number {
  return 3 * temporal_patch_size * patch_size ** 2;
}

/** Sizes of a batch of frames. */
export interface FrameShape {
  readonly frames: number;
  readonly windows: number;
  readonly slots: number;
}

/**
 * The start of a graph for the images of each prompt. The earlier steps are frozen, and computed once for each image:
 * `tokens` are final, `features` go through the connector, pixels through encoder and connector.
 */
export type ImageShape =
  | { readonly from: 'tokens' | 'features'; readonly tokens: number }
  | { readonly from: 'pixels'; readonly frames: FrameShape };

/** The squares (tokens) of one time step, window after window. Squares are counted row after row. */
export function windowsOf(
  { rows, columns }: PatchGrid,
  {
    windows,
    patch_size,
    spatial_merge_size: merge,
  }: Pick<VisionConfig, 'windows' | 'patch_size' | 'spatial_merge_size'>,
): number[][] {
  const [height, width] = [rows / merge, columns / merge];
  const all = Array.from({ length: height * width }, (_, square) => square);
  if (windows === null) return [all];
  const side = Math.floor(windows.window_size / merge / patch_size);
  const perRow = Math.ceil(width / side);
  const out = Array.from({ length: perRow * Math.ceil(height / side) }, (): number[] => []);
  for (const square of all) {
    const [row, column] = [Math.floor(square / width), square % width];
    out[Math.floor(row / side) * perRow + Math.floor(column / side)].push(square);
  }
  return out;
}

/** The smallest shape for all of several lists of images, with the same number of frames. */
export function frameShape(lists: readonly (readonly Pick<PlacedImage, 'grid'>[])[], config: VisionConfig): FrameShape {
  const all = lists.flat().map(({ grid }) => windowsOf(grid, config));
  const squares = Math.max(1, ...all.flat().map((window) => window.length));
  return {
    frames: Math.max(1, ...lists.map((images) => images.reduce((sum, { grid }) => sum + grid.steps, 0))),
    windows: Math.max(1, ...all.map((windows) => windows.length)),
    slots: squares * config.spatial_merge_size ** 2,
  };
}

/** The row of each patch of an image, in Hugging Face's order, if its first time step is frame `first`. */
export function patchRows(
  { grid }: Pick<PlacedImage, 'grid'>,
  config: VisionConfig,
  { windows, slots }: FrameShape,
  first: number,
): Int32Array {
  const perSquare = config.spatial_merge_size ** 2;
  const perStep = grid.rows * grid.columns;
  const out = new Int32Array(grid.steps * perStep);
  const places = windowsOf(grid, config);
  for (let step = 0; step < grid.steps; step++) {
    places.forEach((squares, window) =>
      squares.forEach((square, place) => {
        const row = ((first + step) * windows + window) * slots + place * perSquare;
        for (let i = 0; i < perSquare; i++) out[step * perStep + square * perSquare + i] = row + i;
      }),
    );
  }
  return out;
}

/** The base of the encoder's rotation. */
const THETA = 10_000;

/**
 * Angles [depth of a head / 2] of a patch. The first half rotates with its row, the second with its column. Frequency i
 * is THETA^(-2i/d), where d is the number of elements of each half in a head.
 */
export function patchAngles(
  patch: number,
  grid: PatchGrid,
  { width, num_heads, spatial_merge_size: merge }: VisionConfig,
): number[] {
  const { row, column } = patchPosition(patch, grid, merge);
  const axis = width / num_heads / 2;
  const frequencies = Array.from({ length: axis / 2 }, (_, i) => THETA ** (-(2 * i) / axis));
  return [row, column].flatMap((place) => frequencies.map((frequency) => place * frequency));
}

/** The rows of the table of learned positions that one patch mixes. */
export const CORNERS = 4;

/**
 * The learned position of a patch: the rows of the table that it mixes, and their shares. The table is a square grid
 * whose corners lie on the corner patches of the image. Positions between its points are interpolated in both directions
 * (transformers' `get_vision_interpolation_indices_and_weights`, bilinear, aligned corners).
 */
export function patchPlaces(
  patch: number,
  grid: PatchGrid,
  positions: number,
  merge: number,
): readonly { readonly row: number; readonly share: number }[] {
  const side = Math.floor(Math.sqrt(positions));
  const { row, column } = patchPosition(patch, grid, merge);
  const along = (index: number, count: number): { readonly point: number; readonly share: number }[] => {
    const place = (index * (side - 1)) / Math.max(count - 1, 1);
    const first = Math.floor(place);
    return [
      { point: first, share: 1 - (place - first) },
      { point: Math.min(first + 1, side - 1), share: place - first },
    ];
  };
  return along(row, grid.rows).flatMap((y) =>
    along(column, grid.columns).map((x) => ({ row: y.point * side + x.point, share: y.share * x.share })),
  );
}

/** The position of the patch with index `patch` in Hugging Face's order. */
export function patchPosition(
  patch: number,
  { rows, columns }: PatchGrid,
  merge: number,
): { readonly step: number; readonly row: number; readonly column: number } {
  const within = patch % (rows * columns);
  const square = Math.floor(within / merge ** 2);
  const squaresPerRow = columns / merge;
  const inSquare = within % merge ** 2;
  return {
    step: Math.floor(patch / (rows * columns)),
    row: Math.floor(square / squaresPerRow) * merge + Math.floor(inSquare / merge),
    column: (square % squaresPerRow) * merge + (inSquare % merge),
  };
}

/** Positions of a prompt's tokens on each axis, and the position after them. */
export interface Positions {
  readonly axes: readonly [time: Int32Array, row: Int32Array, column: Int32Array];
  readonly next: number;
}

type PositionSettings = Pick<
  VisionConfig,
  'family' | 'image_token_id' | 'video_token_id' | 'spatial_merge_size' | 'tokens_per_second'
>;

/**
 * Positions of a prompt with placeholders for each token of its images (Wang et al., "Qwen2-VL", 2024), by the rule of
 * transformers 5.23 (`get_rope_index`). Words count on all three axes at once. An image's tokens have its time steps,
 * rows and columns, counted from the end of the words before it. The words after it begin after the larger of its
 * sides, regardless of its duration. Families whose image tokens have the positions of words count all tokens alike.
 */
export function positionsOf(
  ids: readonly number[],
  images: readonly PlacedImage[],
  config: PositionSettings,
): Positions {
  const { image_token_id, video_token_id, spatial_merge_size: merge, tokens_per_second } = config;
  const axes = [new Int32Array(ids.length), new Int32Array(ids.length), new Int32Array(ids.length)] as const;
  if (!layersOf[config.family].placesImages) {
    for (const axis of axes) axis.forEach((_, at) => (axis[at] = at));
    return { axes, next: ids.length };
  }
  let [next, image] = [0, 0];
  for (let at = 0; at < ids.length;) {
    if (ids[at] !== image_token_id && ids[at] !== video_token_id) {
      axes.forEach((axis) => (axis[at] = next));
      next += 1;
      at += 1;
      continue;
    }
    const { kind, grid, secondsPerStep } = images[image++];
    const interval = kind === 'video' && tokens_per_second !== null ? tokens_per_second * secondsPerStep : 1;
    const [rows, columns] = [grid.rows / merge, grid.columns / merge];
    const first = next;
    next += Math.max(rows, columns);
    for (let step = 0; step < grid.steps; step++) {
      // A product in 32 bits, as in transformers: 64 bits may round to another whole number.
      const time = Math.trunc(Math.fround(step * Math.fround(interval)));
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++, at++) {
          const place = [time, row, column];
          axes.forEach((axis, i) => (axis[at] = first + place[i]));
        }
      }
    }
  }
  return { axes, next };
}

/**
 * The axis that each frequency of a head follows: `sections` are the numbers for time, rows and columns. They lie one
 * after another, or alternate (time, row, column, time, …) until the sections of rows and columns are used up. Time has
 * the rest.
 */
export function axesOf(sections: readonly number[], interleaved: boolean): number[] {
  const after = sections.flatMap((count, at) => Array<number>(count).fill(at % 3));
  return interleaved ? after.map((_, i) => (i < 3 * sections[i % 3] ? i % 3 : 0)) : after;
}

/** Writes cosines and sines [depth / 2] of positions on three axes into rows of tables. */
export class AngleTables {
  readonly #frequencies: readonly number[];
  readonly #magnitude: number;
  readonly #axes: readonly number[];
  readonly cos: Float32Array;
  readonly sin: Float32Array;

  constructor(config: RotarySettings, axes: readonly number[], rows: number) {
    const { frequencies, magnitude } = rotationOf(config);
    this.#frequencies = frequencies;
    this.#magnitude = magnitude;
    this.#axes = axes;
    this.cos = new Float32Array(rows * frequencies.length).fill(magnitude);
    this.sin = new Float32Array(rows * frequencies.length);
  }

  set(row: number, position: (axis: number) => number): void {
    const half = this.#frequencies.length;
    this.#frequencies.forEach((frequency, i) => {
      const angle = position(this.#axes[i]) * frequency;
      this.cos[row * half + i] = this.#magnitude * Math.cos(angle);
      this.sin[row * half + i] = this.#magnitude * Math.sin(angle);
    });
  }
}
