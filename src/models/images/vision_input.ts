/** Images and clips in the form that the vision encoders of Qwen2-VL to Qwen3-VL read. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/png.js';
import type { MarkedImageTokens, PatchSizes, ImageTokens } from '../../compute/nets/vision/config.js';
import { type PatchGrid, type PlacedImage, patchPosition, patchWidth } from '../../compute/nets/vision/layout.js';

/** The values of bytes 0 to 255 of a channel: (byte / 255 - mean) / std. */
export interface ColorScale {
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
}

/**
 * One image or one clip of a prompt, ready for the policy. `ImageProcessor` makes it. The same image is always the same
 * object, because the results of a frozen encoder are cached by object.
 */
export interface VisionInput extends PlacedImage {
  /**
   * Frames of one size, whose sides are `rows` and `columns` patches. One for an image, `steps` x `temporal_patch_size`
   * for a clip.
   */
  readonly frames: readonly RgbImage[];
  readonly colours: ColorScale;
}

/** The images and frames of a prompt, without frames that only repeat the last one to complete a temporal step. */
export function framesOf(inputs: readonly VisionInput[]): RgbImage[] {
  return inputs.flatMap(({ frames }) => {
    const last = frames.at(-1);
    return frames.slice(0, frames.findIndex((frame) => frame === last) + 1);
  });
}

/**
 * The limit in bytes of the pixels that a run keeps for inactive prompts, since opening a short clip takes a tenth of a
 * second of CPU time. A second cache of the same size holds the outputs of frozen vision layers.
 */
export const KEPT_BYTES = 2 ** 30;

/** The number of tokens of an image in a prompt. */
export function tokensOf({ steps, rows, columns }: PatchGrid, { spatial_merge_size: merge }: PatchSizes): number {
  return (steps * rows * columns) / merge ** 2;
}

/**
 * Patches [steps * rows * columns, patchWidth] in Hugging Face's order (`pixel_values`): step after step, in each the
 * squares that become one token, row after row, and in each square its patches. `place` gives the row of `out` for a
 * patch. Default: its own.
 */
export function writePatches(
  { frames, grid, colours }: VisionInput,
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
    const { step, row, column } = patchPosition(patch, grid, merge);
    let at = place(patch) * width;
    for (const table of tables) {
      const channel = tables.indexOf(table);
      for (let d = 0; d < depth; d++) {
        // An image is a clip of equal frames.
        const frame = frames.length === 1 ? frames[0] : frames[step * depth + d];
        for (let y = 0; y < side; y++) {
          const from = ((row * side + y) * frame.width + column * side) * 3 + channel;
          for (let x = 0; x < side; x++) out[at++] = table[frame.data[from + 3 * x]];
        }
      }
    }
  }
}

/**
 * Replaces a clip's placeholder in `ids` by placeholders for the given number of images, each between its own marks, as
 * a chat template would for that many images. Raises DataError, naming `where`, if the clip's placeholder is not
 * between marks.
 */
export function withStills(
  ids: readonly number[],
  stills: number,
  {
    image_token_id: image,
    video_token_id: video,
    vision_start_token_id: start,
    vision_end_token_id: end,
  }: MarkedImageTokens,
  where: string,
): number[] {
  const out: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] !== video) {
      out.push(ids[i]);
      continue;
    }
    if (ids[i - 1] !== start || ids[i + 1] !== end) {
      throw new DataError('the placeholder of the video is not between the marks of an image', {
        where,
        next: "Use a chat template that writes them, or set data.frames.as to 'video'.",
      });
    }
    out.pop();
    for (let n = 0; n < stills; n++) out.push(start, image, end);
    i += 1;
  }
  return out;
}

/**
 * Writes as many placeholders for each image as it has tokens. `ids` hold one for each, in the order of `pictures`.
 * Raises DataError, naming `where`, if ids and images do not match.
 */
export function withImages(
  ids: readonly number[],
  images: readonly VisionInput[],
  tokens: ImageTokens,
  sizes: PatchSizes,
  where: string,
): number[] {
  const kindOf = (id: number): VisionInput['kind'] | null =>
    id === tokens.image_token_id ? 'image' : id === tokens.video_token_id ? 'video' : null;
  const asked = ids.map(kindOf).filter((kind) => kind !== null);
  const given = images.map(({ kind }) => kind);
  if (asked.join() !== given.join()) {
    throw new DataError(`the prompt has placeholders for ${counted(asked)}, but ${counted(given)} are given`, {
      where,
      next: 'Give a conversation as many images and videos as its words have placeholders, in their order.',
    });
  }
  let next = 0;
  return ids.flatMap((id) =>
    kindOf(id) === null ? [id] : Array<number>(tokensOf(images[next++].grid, sizes)).fill(id),
  );
}

function counted(kinds: readonly VisionInput['kind'][]): string {
  return kinds.length === 0 ? 'no images' : kinds.join(', ');
}
