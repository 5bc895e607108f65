/** Images and clips in the form that the vision encoders of Qwen2-VL to Qwen3-VL read. */
import { DataError, must } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/png.js';
import type { PatchSizes, ImageTokens } from '../../compute/nets/vision/config.js';
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
  /** The words around it. Absent for the only input of a placeholder, without words. */
  readonly words?: InputWords;
}

/**
 * The words around an input in the text that replaces a placeholder of a conversation. One placeholder may become
 * several inputs, such as the steps of a clip.
 */
export interface InputWords {
  /** The kind of the placeholder. */
  readonly placeholder: VisionInput['kind'];
  /** Whether it is the first input of its placeholder. */
  readonly isFirst: boolean;
  readonly before: string;
  readonly after: string;
}

/** The tokens in place of an image and of a clip, as a chat template writes them, and the marks around them. */
export interface ImageMarks {
  readonly start: string;
  readonly end: string;
  readonly image: string;
  readonly video: string;
}

/** The marks in the vocabularies of Qwen2-VL to Qwen3-VL. */
export const qwenMarks: ImageMarks = {
  start: '<|vision_start|>',
  end: '<|vision_end|>',
  image: '<|image_pad|>',
  video: '<|video_pad|>',
};

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
 * A prompt's text with one placeholder for each input, and the words around it. `text` has one for each image or clip, in
 * the order of `inputs`. Raises DataError, naming `where`, if text and inputs do not match, or if the placeholder
 * of a clip that becomes images is not between marks.
 */
export function withInputWords(text: string, inputs: readonly VisionInput[], marks: ImageMarks, where: string): string {
  const groups = groupsOf(inputs);
  const places = placeholdersIn(text, marks);
  requireSame(
    places.map(({ kind }) => kind),
    groups.map(([first]) => first.words?.placeholder ?? first.kind),
    where,
  );
  let [out, from] = ['', 0];
  places.forEach(({ kind, at }, i) => {
    const group = groups[i];
    const end = at + marks[kind].length;
    out += text.slice(from, at);
    const isMarked = text.slice(0, at).endsWith(marks.start) && text.startsWith(marks.end, end);
    // Frames as images share the marks of their clip.
    if (group.length > 1 && group[0].kind !== kind && !isMarked) {
      throw new DataError('the placeholder of the video is not between the marks of an image', {
        where,
        next: "Use a chat template that writes them, or set data.frames.as to 'video'.",
      });
    }
    for (const { words, kind: own } of group) out += `${words?.before ?? ''}${marks[own]}${words?.after ?? ''}`;
    from = end;
  });
  return out + text.slice(from);
}

/** The inputs of each placeholder. */
function groupsOf(inputs: readonly VisionInput[]): [VisionInput, ...VisionInput[]][] {
  const groups: [VisionInput, ...VisionInput[]][] = [];
  for (const input of inputs) {
    if (input.words?.isFirst === false) must(groups.at(-1), 'the first input of a placeholder').push(input);
    else groups.push([input]);
  }
  return groups;
}

/** The placeholders of a text, in order. */
function placeholdersIn(
  text: string,
  marks: ImageMarks,
): { readonly kind: VisionInput['kind']; readonly at: number }[] {
  const kinds = ['image', 'video'] as const;
  return kinds
    .flatMap((kind) => {
      const pieces = text.split(marks[kind]).slice(0, -1);
      let at = -marks[kind].length;
      return pieces.map((piece) => ({ kind, at: (at += marks[kind].length + piece.length) }));
    })
    .sort((one, other) => one.at - other.at);
}

/**
 * Writes as many placeholders for each input as it has tokens. `ids` hold one for each, in the order of `images`.
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
  const kinds = images.map(({ kind }) => kind);
  requireSame(
    ids.map(kindOf).filter((kind) => kind !== null),
    kinds,
    where,
  );
  let next = 0;
  return ids.flatMap((id) =>
    kindOf(id) === null ? [id] : Array<number>(tokensOf(images[next++].grid, sizes)).fill(id),
  );
}

function requireSame(
  wanted: readonly VisionInput['kind'][],
  given: readonly VisionInput['kind'][],
  where: string,
): void {
  if (wanted.join() === given.join()) return;
  throw new DataError(`the prompt has placeholders for ${counted(wanted)}, but ${counted(given)} are given`, {
    where,
    next: 'Give a conversation as many images and videos as its words have placeholders, in their order.',
  });
}

function counted(kinds: readonly VisionInput['kind'][]): string {
  return kinds.length === 0 ? 'no images' : kinds.join(', ');
}
