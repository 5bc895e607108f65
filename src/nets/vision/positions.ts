/**
 * Rotary positions on three axes (Wang et al., "Qwen2-VL", 2024) by the rule of transformers 5.23 (`get_rope_index`): words count on all three
 * at once; a picture's tokens have its time steps, rows and columns, from where the words before it ended; the words behind it begin after the
 * larger of its sides, however long it lasts. (In transformers 4 they began after the largest of the three.)
 */
import { rotationOf, type RotarySettings } from '../decoder/rope.js';
import type { VisionConfig } from './config.js';
import type { PlacedPicture } from './layout.js';

/** Positions of a prompt's tokens on each axis, and the position after them. */
export interface Positions {
  readonly axes: readonly [time: Int32Array, row: Int32Array, column: Int32Array];
  readonly next: number;
}

type PositionSettings = Pick<
  VisionConfig,
  'image_token_id' | 'video_token_id' | 'spatial_merge_size' | 'tokens_per_second'
>;

/** Positions of a prompt that holds placeholders for each token of its pictures. */
export function positionsOf(
  ids: readonly number[],
  pictures: readonly PlacedPicture[],
  config: PositionSettings,
): Positions {
  const { image_token_id, video_token_id, spatial_merge_size: merge, tokens_per_second } = config;
  const axes = [new Int32Array(ids.length), new Int32Array(ids.length), new Int32Array(ids.length)] as const;
  let [next, picture] = [0, 0];
  for (let at = 0; at < ids.length;) {
    if (ids[at] !== image_token_id && ids[at] !== video_token_id) {
      axes.forEach((axis) => (axis[at] = next));
      next += 1;
      at += 1;
      continue;
    }
    const { kind, grid, secondsPerStep } = pictures[picture++];
    const interval = kind === 'video' && tokens_per_second !== null ? tokens_per_second * secondsPerStep : 1;
    const [rows, columns] = [grid.rows / merge, grid.columns / merge];
    const first = next;
    next += Math.max(rows, columns);
    for (let step = 0; step < grid.steps; step++) {
      // A product of 32 bits, as there: 64 may come to another whole number.
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

/** The axis that each frequency of a head follows: `sections` are the numbers for time, rows and columns. */
export function axesOf(sections: readonly number[]): number[] {
  return sections.flatMap((count, at) => Array<number>(count).fill(at % 3));
}

/** Writes cosines and sines [depth / 2] of positions on three axes into rows of tables. */
export class AngleTables {
  readonly #frequencies: readonly number[];
  readonly #magnitude: number;
  readonly #axes: readonly number[];
  readonly cos: Float32Array;
  readonly sin: Float32Array;

  constructor(config: RotarySettings, sections: readonly number[], rows: number) {
    const { frequencies, magnitude } = rotationOf(config);
    this.#frequencies = frequencies;
    this.#magnitude = magnitude;
    this.#axes = axesOf(sections);
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
