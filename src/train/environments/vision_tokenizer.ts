/** The environment of `image_edit_tokens`: converts vision codes to pixels and pixels to codes. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import type { CodeGrid } from '../../data/types.js';

/** Facts about an image tokenizer before it is loaded. */
export interface VisionTokenizerConfig {
  /** Number of codes. */
  readonly codebook_size: number;
  /** Side in pixels of the square that one code represents. */
  readonly patch: number;
}

/** How an image tokenizer's own processor chooses the size of an image. */
export interface ImageSizing {
  /** The rules that determine it, for records. */
  readonly rules: object;
  /** Resizes the image. Raises DataError, with `where`, for an image that the processor rejects. */
  fit(image: RgbImage, where: string): RgbImage;
}

export interface VisionTokenizer {
  /** Changes whenever the meaning of codes changes. */
  readonly id: string;
  readonly config: VisionTokenizerConfig;
  /** Null keeps images as they are. */
  readonly sizing: ImageSizing | null;
  /** The codes of images, which may differ in size. Raises DataError for a side that is not a multiple of `patch`. */
  encode(images: readonly RgbImage[]): Promise<CodeGrid[]>;
  decode(grids: readonly CodeGrid[]): Promise<RgbImage[]>;
  /** Frees the sessions, which are recreated on demand. */
  dispose(): Promise<void>;
}

/** The size of an image in codes. Raises DataError when a side is not a multiple of `patch`. */
export function gridSize({ width, height }: RgbImage, patch: number): { height: number; width: number } {
  if (width % patch === 0 && height % patch === 0) return { height: height / patch, width: width / patch };
  throw new DataError(`the image size ${width} x ${height} is not a multiple of the patch size ${patch}`, {
    next: `Resize the images to multiples of ${patch}.`,
  });
}
