/** Images on their way to a judge: always PNG, since lossy coding leaves artifacts that the judge would hold against the policy. */
import { createHash } from 'node:crypto';
import { DataError } from '../core/errors.js';
import type { RgbImage } from '../core/image.js';
import { encodePng } from '../core/image.js';

/** Vision encoders with 14-pixel patches merged two by two take no smaller side. */
export const minSide = 28;
/** The longest shape that Qwen2.5-VL's image processor accepts. */
const maxAspectRatio = 200;

/** An image as queries refer to it: named by its pixels, encoded when a request is really sent. */
export interface JudgeImage {
  /** SHA-256 over width, height and pixels. */
  readonly digest: string;
  /** `data:image/png;base64,...`; encoded once, however many queries send it. */
  dataUrl(): Promise<string>;
}

/** Whether a judge can be shown an image of this size. */
export function isShowable(image: RgbImage): boolean {
  const short = Math.min(image.width, image.height);
  return short >= minSide && Math.max(image.width, image.height) < maxAspectRatio * short;
}

/**
 * Prepares images and keeps the encodings that were used last, since the prompts of one group share their source. Keyed by content: an
 * image buffer may be written again for the next episode.
 */
export class JudgeImages {
  readonly #encoded = new Map<string, Promise<string>>();
  readonly #capacity: number;

  /** @param capacity how many encodings are kept. */
  constructor(capacity = 64) {
    this.#capacity = capacity;
  }

  /** Raises DataError, naming `what`, for a size that no judge takes. */
  prepare(image: RgbImage, what: string): JudgeImage {
    if (!isShowable(image)) {
      throw new DataError(
        `the image is ${image.width}x${image.height} pixels; a judge takes sides from ${minSide} pixels and no shape longer than ${maxAspectRatio}:1`,
        { where: what, next: 'Enlarge the images of this dataset or environment before they are judged.' },
      );
    }
    const digest = createHash('sha256').update(`${image.width}x${image.height}:`).update(image.data).digest('hex');
    let url: Promise<string> | null = null;
    return { digest, dataUrl: () => (url ??= this.#encode(digest, image)) };
  }

  #encode(digest: string, image: RgbImage): Promise<string> {
    const kept = this.#encoded.get(digest);
    const url = kept ?? encodePng(image).then((png) => `data:image/png;base64,${Buffer.from(png).toString('base64')}`);
    this.#encoded.delete(digest);
    this.#encoded.set(digest, url);
    if (this.#encoded.size > this.#capacity) {
      for (const oldest of this.#encoded.keys()) {
        this.#encoded.delete(oldest);
        break;
      }
    }
    return url;
  }
}
