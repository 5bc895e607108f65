/** The environment of `image_edit_tokens`: what turns vision codes into pixels, and pixels into codes. */
import { DataError } from '../core/errors.js';
import type { RgbImage } from '../core/image.js';
import type { CodeGrid } from '../data/types.js';

/** What is known of an image tokenizer before it computes. */
export interface VisionTokenizerConfig {
  /** How many codes there are. */
  readonly codebook_size: number;
  /** Side of the square of pixels that one code stands for. */
  readonly patch: number;
}

export interface VisionTokenizer {
  /** Changes whenever codes would mean something else. */
  readonly id: string;
  readonly config: VisionTokenizerConfig;
  /** The codes of images, which may differ in size. Raises DataError for a side that is no multiple of `patch`. */
  encode(images: readonly RgbImage[]): Promise<CodeGrid[]>;
  decode(grids: readonly CodeGrid[]): Promise<RgbImage[]>;
  /** Frees what computes, which is made again where it is needed. */
  dispose(): Promise<void>;
}

/** The size of an image in codes. Raises DataError where a side is no multiple of `patch`. */
export function gridSize({ width, height }: RgbImage, patch: number): { height: number; width: number } {
  if (width % patch === 0 && height % patch === 0) return { height: height / patch, width: width / patch };
  throw new DataError(`an image of ${width} x ${height} pixels cannot be cut into patches of ${patch}`, {
    next: `Resize the images so that both sides are multiples of ${patch}.`,
  });
}
