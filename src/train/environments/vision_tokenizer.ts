/** The environment of `image_edit_tokens`: converts vision codes to pixels, and pixels to codes. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import type { CodeGrid } from '../../data/types.js';

/** Facts about an image tokenizer before it is loaded. */
export interface VisionTokenizerConfig {
  /** Number of codes. */
  readonly codebook_size: number;
  /** Side of the square of pixels that one code represents. */
  readonly patch: number;
}

/** How an image tokenizer's own processor chooses the size of an image. */
export interface ImageSizing {
  /** What decides it, for records. */
  readonly rules: object;
  /** The image in that size. Raises DataError, naming `where`, for one that the processor refuses. */
  fit(image: RgbImage, where: string): RgbImage;
}

export interface VisionTokenizer {
  /** Changes whenever codes would mean something else. */
  readonly id: string;
  readonly config: VisionTokenizerConfig;
  /** Null: images stay as they are. */
  readonly sizing: ImageSizing | null;
  /** The codes of images, which may differ in size. Raises DataError for a side that is not a multiple of `patch`. */
  encode(images: readonly RgbImage[]): Promise<CodeGrid[]>;
  decode(grids: readonly CodeGrid[]): Promise<RgbImage[]>;
  /** Frees the sessions, which are recreated when needed. */
  dispose(): Promise<void>;
}

/** The size of an image in codes. Raises DataError when a side is not a multiple of `patch`. */
export function gridSize({ width, height }: RgbImage, patch: number): { height: number; width: number } {
  if (width % patch === 0 && height % patch === 0) return { height: height / patch, width: width / patch };
  throw new DataError(`the image size ${width} x ${height} is not a multiple of the patch size ${patch}`, {
    next: `Resize the images to multiples of ${patch}.`,
  });
}
