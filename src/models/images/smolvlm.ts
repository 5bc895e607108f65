/**
 * Turns images into the inputs of SmolVLM, as transformers' SmolVLMProcessor does: an image is resized to whole squares
 * of the encoder, cut into them, and shown once more as a whole.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/png.js';
import { cropImage, resizeLanczos } from '../../core/images/resize.js';
import type { PatchSizes, VisionConfig } from '../../compute/nets/vision/config.js';
import { readJson } from '../files.js';
import { PROCESSOR_FILE, type PromptImages } from './processor.js';
import type { ColorScale, ImageMarks, VisionInput } from './vision_input.js';

/** The placeholders of SmolVLM's chat template. The marks around images are words of each input. */
export const smolvlmMarks: ImageMarks = { start: '', end: '', image: '<image>', video: '<video>' };

/** The token before and after an image. */
export const SMOLVLM_FAKE = '<fake_token_around_image>';
const WHOLE = '<global-img>';
/** The largest side that transformers resizes to. */
const MAX_SIDE = 4096;

export interface SmolvlmSettings {
  readonly sizes: PatchSizes;
  readonly colours: ColorScale;
  /** The longer side of a resized image before it is cut, in pixels. */
  readonly longest_edge: number;
  /** The side of the encoder's square, in pixels. */
  readonly side: number;
  /** Whether images are cut. Otherwise they are only shown as a whole. */
  readonly splits: boolean;
}

export class SmolvlmProcessor implements PromptImages {
  constructor(readonly settings: SmolvlmSettings) {}

  tokensOf(image: Sides): number {
    const { longest_edge, side, splits } = this.settings;
    const [width, height] = wholeSquares(longestEdge(image, longest_edge), side);
    const parts = splits ? (width / side) * (height / side) : 1;
    return (parts === 1 ? 1 : parts + 1) * this.#tokensOfSquare;
  }

  inputs(image: RgbImage): VisionInput[] {
    const { longest_edge, side, splits } = this.settings;
    const first = resizeLanczos(image, ...longestEdge(image, longest_edge));
    const whole = splits ? resizeLanczos(first, ...wholeSquares([first.width, first.height], side)) : first;
    const [rows, columns] = [whole.height / side, whole.width / side];
    if (!splits || rows * columns === 1) {
      return [this.#input(resizeLanczos(whole, side, side), { before: SMOLVLM_FAKE + WHOLE, after: SMOLVLM_FAKE })];
    }
    const parts = Array.from({ length: rows * columns }, (_, i) => {
      const [row, column] = [Math.floor(i / columns), i % columns];
      const part = cropImage(whole, { left: column * side, top: row * side, width: side, height: side });
      const after = column === columns - 1 ? '\n' : '';
      return this.#input(part, { before: `${SMOLVLM_FAKE}<row_${row + 1}_col_${column + 1}>`, after }, i === 0);
    });
    const last = { before: `\n${SMOLVLM_FAKE}${WHOLE}`, after: SMOLVLM_FAKE };
    return [...parts, this.#input(resizeLanczos(whole, side, side), last, false)];
  }

  /** Raises DataError: recipes show SmolVLM the frames of clips. */
  video(_clip: unknown, where: string): Promise<VisionInput[]> {
    return Promise.reject(new DataError('SmolVLM reads clips as frames only', { where }));
  }

  async stills(frames: readonly RgbImage[]): Promise<VisionInput[]> {
    const { longest_edge, side } = this.settings;
    const words = { before: SMOLVLM_FAKE + WHOLE, after: SMOLVLM_FAKE };
    return frames.map((frame, i) => {
      const first = resizeLanczos(frame, ...longestEdge(frame, longest_edge));
      return this.#input(resizeLanczos(first, side, side), words, i === 0, 'video');
    });
  }

  get mostImageTokens(): number {
    const { longest_edge, side, splits } = this.settings;
    const squares = splits ? Math.ceil(longest_edge / side) ** 2 + 1 : 1;
    return squares * (this.#tokensOfSquare + MOST_WORDS) + 1;
  }

  mostClipTokens(frames: number): number {
    return this.mostStillsTokens(frames);
  }

  mostStillsTokens(frames: number): number {
    return frames * (this.#tokensOfSquare + MOST_WORDS);
  }

  get #tokensOfSquare(): number {
    const { sizes, side } = this.settings;
    return (side / sizes.patch_size / sizes.spatial_merge_size) ** 2;
  }

  #input(
    frame: RgbImage,
    around: { readonly before: string; readonly after: string },
    isFirst = true,
    placeholder: VisionInput['kind'] = 'image',
  ): VisionInput {
    const { sizes, colours } = this.settings;
    const grid = { steps: 1, rows: frame.height / sizes.patch_size, columns: frame.width / sizes.patch_size };
    return {
      kind: 'image',
      frames: [frame],
      grid,
      secondsPerStep: 0,
      colours,
      words: { placeholder, isFirst, ...around },
    };
  }
}

type Sides = Pick<RgbImage, 'width' | 'height'>;

/** The tokens around a square: the marks before and after it, its place, and the end of a line. */
const MOST_WORDS = 4;

/** The width and height with this longer side. The shorter one is even. */
function longestEdge({ width, height }: Sides, longest: number): [width: number, height: number] {
  const ratio = width / height;
  const even = (side: number): number => Math.max(1, side + (side % 2));
  return width >= height ? [longest, even(Math.trunc(longest / ratio))] : [even(Math.trunc(longest * ratio)), longest];
}

/** The next larger width and height that are multiples of the encoder's square. */
function wholeSquares(
  [width, height]: readonly [width: number, height: number],
  side: number,
): [width: number, height: number] {
  const ratio = width / height;
  const up = (length: number): number => Math.ceil(length / side) * side;
  return width >= height
    ? [up(width), up(Math.trunc(up(width) / ratio))]
    : [up(Math.trunc(up(height) * ratio)), up(height)];
}

const size = z.int().positive();
const three = z.tuple([z.number(), z.number(), z.number()]);
/** Pillow's number for Lanczos. */
const LANCZOS = 1;
const half: [number, number, number] = [0.5, 0.5, 0.5];

const file = z.looseObject({
  image_processor_type: z.string().regex(/^(?:SmolVLM|Idefics3)ImageProcessor(?:Fast|Pil)?$/),
  do_resize: z.literal(true).default(true),
  do_rescale: z.literal(true).default(true),
  do_normalize: z.literal(true).default(true),
  do_image_splitting: z.boolean().default(true),
  resample: z.literal(LANCZOS, 'only 1 (Lanczos) is available').default(LANCZOS),
  image_mean: three.default(half),
  image_std: three.default(half),
  size: z.object({ longest_edge: size.max(MAX_SIDE) }).default({ longest_edge: 4 * 364 }),
  max_image_size: z.object({ longest_edge: size }).default({ longest_edge: 364 }),
});

/**
 * The processor of a SmolVLM model's folder. `maxPixels` limits the longer side of images to its square root. Raises
 * CheckpointError for a missing or unsupported file, and for squares that are not those of the encoder.
 */
export function openSmolvlmProcessor(folder: string, vision: VisionConfig, maxPixels = Infinity): SmolvlmProcessor {
  const where = join(folder, PROCESSOR_FILE);
  const parsed = file.safeParse(readJson(where));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const { image_mean: mean, image_std: std, size: resized, max_image_size: square, do_image_splitting } = parsed.data;
  const { patch_size, temporal_patch_size, spatial_merge_size, num_position_embeddings } = vision;
  const side = Math.sqrt(num_position_embeddings ?? 0) * patch_size;
  if (square.longest_edge !== side) {
    throw new CheckpointError(
      `max_image_size.longest_edge: found ${square.longest_edge}; allowed: image_size of the encoder, ${side}`,
      { where },
    );
  }
  return new SmolvlmProcessor({
    sizes: { patch_size, temporal_patch_size, spatial_merge_size },
    colours: { mean, std },
    longest_edge: Math.min(resized.longest_edge, Math.max(side, Math.floor(Math.sqrt(maxPixels)))),
    side,
    splits: do_image_splitting,
  });
}
