/** Images on their way to a judge: always PNG, since lossy coding leaves artifacts that the judge would hold against the policy. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';
import { enlargeImage, imageId, pngToSend, shrinkImage } from '../../core/images/image.js';

/** Vision encoders with 14-pixel patches merged two by two take no smaller side. */
export const minSide = 28;
/** More costs context (1,369 tokens in Qwen2.5-VL at 1024x1024) and shows a judge little that it grades. */
const maxSide = 1024;
/** The longest shape that Qwen2.5-VL's image processor accepts. */
const maxAspectRatio = 200;

interface Size {
  readonly width: number;
  readonly height: number;
}

/** An image as queries refer to it: encoded when a request is sent. */
export interface JudgeImage {
  /** The id of the picture (`imageId`), and the size in which it is shown if that is another. */
  readonly id: string;
  /** `data:image/png;base64,...`; the picture is encoded once, however many queries send it. */
  dataUrl(): Promise<string>;
}

/** Whether a judge can be shown an image of this shape, in whatever size. */
export function isShowable({ width, height }: RgbImage): boolean {
  const short = Math.min(width, height);
  return short >= 1 && Math.max(width, height) < maxAspectRatio * short;
}

/** What keeps an image from being shown, for messages; null if nothing does. */
export function whyUnshowable(image: RgbImage): string | null {
  if (isShowable(image)) return null;
  return `the image is ${image.width}x${image.height} pixels; a judge takes no shape as long as ${maxAspectRatio}:1`;
}

/**
 * The size in which an image is shown: its own if both sides are from 28 to 1024 pixels. A smaller one is enlarged by the least whole
 * factor, each pixel to a square of its own color, so that nothing is drawn that was not there. A larger one is shrunk in
 * proportion, but no further than to 28 pixels on its short side.
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

  /** Hashed only when it is asked for: hashing an iteration's images at once would keep the first question waiting for the last. */
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

/** A group's questions share their source, and those about an edit the edit. */
const shown = new WeakMap<RgbImage, ShownImage>();

/** An image as a judge is shown it. Raises DataError, naming `what`, for a shape that no judge takes (`isShowable` tells before). */
export function judgeImage(image: RgbImage, what: string): JudgeImage {
  const problem = whyUnshowable(image);
  if (problem !== null) {
    throw new DataError(problem, { where: what, next: 'Crop or pad the images of this dataset or environment.' });
  }
  const made = shown.get(image) ?? new ShownImage(image);
  shown.set(image, made);
  return made;
}
