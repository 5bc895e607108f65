/** Pictures and clips in the form that the vision encoders of Qwen2-VL and Qwen2.5-VL read. */
import type { RgbImage } from '../../core/png.js';

/** How pictures are cut, in the words of Hugging Face's configs. */
export interface PatchSizes {
  /** Side of a patch in pixels. */
  readonly patch_size: number;
  /** Frames that one patch reaches through. */
  readonly temporal_patch_size: number;
  /** Side of the square of patches that becomes one token. */
  readonly spatial_merge_size: number;
}

/** Patches of a picture: time steps (1 for an image), rows and columns; rows and columns are multiples of `spatial_merge_size`. */
export interface PatchGrid {
  readonly steps: number;
  readonly rows: number;
  readonly columns: number;
}

/** The values of bytes 0 to 255 of a channel: (byte / 255 - mean) / std. */
export interface ColourScale {
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
}

/**
 * One image or one clip of a prompt, ready for the policy. `PictureProcessor` makes it. The same picture is always the same object, because the
 * results of a frozen encoder are cached by object.
 */
export interface Picture {
  readonly kind: 'image' | 'video';
  /** Frames of one size, whose sides are `rows` and `columns` patches; one for an image, `steps` x `temporal_patch_size` for a clip. */
  readonly frames: readonly RgbImage[];
  readonly grid: PatchGrid;
  /** Seconds from one time step to the next, which the temporal positions of Qwen2.5-VL follow. 0 for an image. */
  readonly secondsPerStep: number;
  readonly colours: ColourScale;
}

/**
 * Bytes that a run keeps of the pixels of prompts that nobody is working at, since opening a short clip takes a tenth of a second of processor time;
 * and, beside these, of what frozen parts of the model make of pictures.
 */
export const KEPT_BYTES = 2 ** 30;

/** Tokens that stand for a picture in a prompt. */
export function tokensOf({ steps, rows, columns }: PatchGrid, { spatial_merge_size: merge }: PatchSizes): number {
  return (steps * rows * columns) / merge ** 2;
}

/** Values of one patch: channels x frames x rows x columns of pixels. */
export function patchWidth({ patch_size, temporal_patch_size }: PatchSizes): number {
  return 3 * temporal_patch_size * patch_size ** 2;
}

/**
 * Patches [steps * rows * columns, patchWidth] in Hugging Face's order (`pixel_values`): step after step, in each the squares that become one
 * token, row after row, and in each square its patches. `place` says in which row of `out` a patch goes; default: its own.
 */
export function writePatches(
  { frames, grid, colours }: Picture,
  sizes: PatchSizes,
  out: Float32Array,
  place: (patch: number) => number = (patch) => patch,
): void {
  const { patch_size: side, temporal_patch_size: depth, spatial_merge_size: merge } = sizes;
  const width = patchWidth(sizes);
  const tables = [0, 1, 2].map((channel) =>
    Float32Array.from({ length: 256 }, (_, byte) => (byte / 255 - colours.mean[channel]) / colours.std[channel]),
  );
  for (let patch = 0; patch < grid.steps * grid.rows * grid.columns; patch++) {
    const { step, row, column } = patchPlace(patch, grid, merge);
    let at = place(patch) * width;
    for (const table of tables) {
      const channel = tables.indexOf(table);
      for (let d = 0; d < depth; d++) {
        // An image is a clip that stands still.
        const frame = frames.length === 1 ? frames[0] : frames[step * depth + d];
        for (let y = 0; y < side; y++) {
          const from = ((row * side + y) * frame.width + column * side) * 3 + channel;
          for (let x = 0; x < side; x++) out[at++] = table[frame.data[from + 3 * x]];
        }
      }
    }
  }
}

/** The position of the patch with index `patch` in Hugging Face's order. */
export function patchPlace(
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
