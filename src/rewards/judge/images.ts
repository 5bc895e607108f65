/** Images on their way to a judge: always PNG, since lossy coding leaves artifacts that the judge would hold against the policy. */
import { LRUCache } from 'lru-cache';
import { createXXHash128 } from 'hash-wasm';
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { encodePngToSend, enlargeImage, shrinkImage } from '../../core/image.js';

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

/** A picture and the size in which it is shown, as plain data that another thread can take; `digest` names both. */
export interface ShownPicture {
  readonly digest: string;
  readonly image: RgbImage;
  readonly size: Size;
}

/** An image as queries refer to it: named by its pixels, encoded when a request is really sent. */
export interface JudgeImage {
  /** A hash (XXH3, 128 bits) over the size, the pixels, and the size in which they are shown where that is another. */
  readonly digest: string;
  /** `data:image/png;base64,...`; encoded once, however many queries send it. */
  dataUrl(): Promise<string>;
  /** What it is made from. */
  readonly picture: ShownPicture;
}

/** Whether a judge can be shown an image of this shape, in whatever size. */
export function isShowable({ width, height }: RgbImage): boolean {
  const short = Math.min(width, height);
  return short >= 1 && Math.max(width, height) < maxAspectRatio * short;
}

/** What keeps an image from being shown, for messages; null where nothing does. */
export function whyUnshowable(image: RgbImage): string | null {
  if (isShowable(image)) return null;
  return `the image is ${image.width}x${image.height} pixels; a judge takes no shape as long as ${maxAspectRatio}:1`;
}

/**
 * Names pictures and guards nothing, so it need not withstand an attacker; hash-wasm has it at a fifth of the cost of Node's hashes,
 * which would be a third of what a call costs.
 */
const hasher = await createXXHash128();

/**
 * The size in which an image is shown: its own where both sides are from 28 to 1024 pixels. A smaller one is enlarged by the least whole
 * factor, each pixel to a square of its own colour, so that nothing is drawn that was not there; a larger one is shrunk in
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

/**
 * Prepares images and keeps the encodings that were used last, since the prompts of one group share their source. An image that was
 * handed over is not written again. Nothing is hashed before it is asked for: hashing an iteration's images at once would keep the
 * first question waiting for the last.
 */
export class JudgeImages {
  readonly #encoded: LRUCache<string, Promise<string>>;
  readonly #hashed = new WeakMap<RgbImage, string>();

  /** @param capacity how many encodings are kept. */
  constructor(capacity = 64) {
    this.#encoded = new LRUCache({ max: capacity });
  }

  /** Raises DataError, naming `what`, for a shape that no judge takes (`isShowable` tells before). */
  prepare(image: RgbImage, what: string): JudgeImage {
    const problem = whyUnshowable(image);
    if (problem !== null) {
      throw new DataError(problem, { where: what, next: 'Crop or pad the images of this dataset or environment.' });
    }
    return this.#shown(image, shownSize(image));
  }

  /** A picture that was prepared in another thread; it is not hashed again. */
  adopt({ digest, image, size }: ShownPicture): JudgeImage {
    return this.#shown(image, size, digest);
  }

  /** A group's items name the same source, and hashing it again would cost more than asking about it. */
  #contentOf(image: RgbImage): string {
    const known = this.#hashed.get(image);
    if (known !== undefined) return known;
    const content = hasher.init().update(`${image.width}x${image.height}:`).update(image.data).digest('hex');
    this.#hashed.set(image, content);
    return content;
  }

  #digestOf(image: RgbImage, size: Size): string {
    const content = this.#contentOf(image);
    const asIs = size.width === image.width && size.height === image.height;
    return asIs ? content : `${content}@${size.width}x${size.height}`;
  }

  #shown(image: RgbImage, size: Size, known?: string): JudgeImage {
    const digest = (): string => known ?? this.#digestOf(image, size);
    let url: Promise<string> | null = null;
    return {
      get digest() {
        return digest();
      },
      dataUrl: () => (url ??= this.#encode(digest(), image, size)),
      get picture() {
        return { digest: digest(), image, size };
      },
    };
  }

  #encode(digest: string, image: RgbImage, size: Size): Promise<string> {
    const kept = this.#encoded.get(digest);
    if (kept !== undefined) return kept;
    const url = encodeAt(image, size);
    this.#encoded.set(digest, url);
    return url;
  }
}

async function encodeAt(image: RgbImage, size: Size): Promise<string> {
  const png = await encodePngToSend(await fit(image, size));
  return `data:image/png;base64,${Buffer.from(png.buffer, png.byteOffset, png.length).toString('base64')}`;
}

async function fit(image: RgbImage, size: Size): Promise<RgbImage> {
  if (size.width > image.width) return enlargeImage(image, size.width / image.width);
  const asIs = size.width === image.width && size.height === image.height;
  return asIs ? image : shrinkImage(image, size.width, size.height);
}
