/** Images for a judge. Always PNG, because lossy coding leaves artifacts that lower the scores of the policy. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { enlargeImage, imageId, pngToSend, shrinkImage } from '../../core/images/image.js';

/** Vision encoders with 14-pixel patches merged two by two accept no smaller side. */
export const minSide = 28;
/** More pixels cost context (1,369 tokens in Qwen2.5-VL at 1024x1024) and show a judge little that it grades. */
const maxSide = 1024;
/** The longest shape that Qwen2.5-VL's image processor accepts. */
const maxAspectRatio = 200;

interface Size {
  readonly width: number;
  readonly height: number;
}

/** An image in a query, encoded when a request is sent. */
export interface JudgeImage {
  /** The id of the image (`imageId`), and its shown size if that is another. */
  readonly id: string;
  /** `data:image/png;base64,...`. The image is encoded once, however many queries send it. */
  dataUrl(): Promise<string>;
}

/** Whether a judge accepts an image of this shape, in any size. */
export function isShowable({ width, height }: RgbImage): boolean {
  const short = Math.min(width, height);
  return short >= 1 && Math.max(width, height) < maxAspectRatio * short;
}

/** Why an image cannot be shown, for messages. Null if it can. */
export function whyUnshowable(image: RgbImage): string | null {
  if (isShowable(image)) return null;
  return `the image is ${image.width}x${image.height} pixels; judges accept only shapes below ${maxAspectRatio}:1`;
}

/**
 * The size in which an image is shown: its own if both sides are from 28 to 1024 pixels. A smaller image is enlarged by the least whole
 * factor, each pixel to a square of its own color, so that nothing new appears. A larger image is reduced in proportion, but not below 28
 * pixels on its short side.
 */
function shownSize({ width, height }: Size): Size {
  const short = Math.min(width, height);
  if (short < minSide) {
    const factor = Math.ceil(minSide / short);
    return { width: width * factor, height: height * factor };
  }
  const scale = Math.max(Math.min(1, maxSide / Math.max(width, height)), minSide / short);
  const scaled = (side: number): number => Math.max(minSide, Math.floor(side * scale + 1e-6));
  return { width: scaled(width), height: scaled(height) };
}

class ShownImage implements JudgeImage {
  readonly #size: Size;
  #png: Promise<Uint8Array> | null = null;

  constructor(private readonly image: RgbImage) {
    this.#size = shownSize(image);
  }

  /** Hashed only on request: hashing an iteration's images at once would delay the first question until the last image. */
  get id(): string {
    const { width, height } = this.#size;
    const isAsIs = width === this.image.width && height === this.image.height;
    return isAsIs ? imageId(this.image) : `${imageId(this.image)}@${width}x${height}`;
  }

  async dataUrl(): Promise<string> {
    const png = await (this.#png ??= this.#encode());
    return `data:image/png;base64,${Buffer.from(png.buffer, png.byteOffset, png.length).toString('base64')}`;
  }

  async #encode(): Promise<Uint8Array> {
    const { image } = this;
    const { width, height } = this.#size;
    if (width > image.width) return pngToSend(enlargeImage(image, width / image.width));
    return pngToSend(
      width === image.width && height === image.height ? image : await shrinkImage(image, width, height),
    );
  }
}

/** A group's questions share their source, and those about an edit share the edit. */
const shown = new WeakMap<RgbImage, ShownImage>();

/** An image as a judge sees it. Raises DataError, naming `what`, for a shape that no judge accepts (see `isShowable`). */
export function judgeImage(image: RgbImage, what: string): JudgeImage {
  const problem = whyUnshowable(image);
  if (problem !== null) {
    throw new DataError(problem, { where: what, next: 'Crop or pad the images of this dataset or environment.' });
  }
  const made = shown.get(image) ?? new ShownImage(image);
  shown.set(image, made);
  return made;
}
