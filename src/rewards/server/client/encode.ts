/** Encodes items for a reward server. */
import { createHash, type Hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { RgbImage } from '../../../core/image.js';
import { encodePngToSend } from '../../../core/image.js';
import type { RequestItem } from '../wire.js';
import type { JudgeItem } from '../../score/types.js';

/** Number of cached encodings, by content: the prompts of one group share their source. */
const kept = 64;

/** Encodes items as requests. */
export class ItemEncoder {
  readonly #images = new LRUCache<string, Promise<string>>({ max: kept });

  /** The body of a request that scores this item alone. */
  async body(item: JudgeItem): Promise<string> {
    const [source, image, truth, mask] = await Promise.all([
      this.image(item.source),
      this.image(item.edited),
      this.image(item.truth),
      this.image(item.mask ?? null),
    ]);
    const request: RequestItem = {
      key: item.key,
      instruction: item.instruction,
      image,
      source,
      truth,
      ...(mask === null ? {} : { mask }),
      ...(item.answer === undefined ? {} : { answer: item.answer }),
      ...(item.expected === undefined ? {} : { expected: item.expected }),
      finished: item.finished,
    };
    return JSON.stringify({ items: [request] });
  }

  /** A picture as base64 of its PNG. */
  image(image: RgbImage | null): Promise<string> | null {
    if (image === null) return null;
    const digest = digestOf(image);
    const known = this.#images.get(digest);
    if (known !== undefined) return known;
    const encoded = encode(image);
    this.#images.set(digest, encoded);
    return encoded;
  }
}

async function encode(image: RgbImage): Promise<string> {
  const png = await encodePngToSend(image);
  return Buffer.from(png.buffer, png.byteOffset, png.length).toString('base64');
}

function digestOf(image: RgbImage): string {
  return addImage(createHash('sha256'), image).digest('hex');
}

function addImage(hash: Hash, image: RgbImage | null): Hash {
  if (image === null) return hash.update('none;');
  return hash.update(`${image.width}x${image.height}:`).update(image.data);
}

/** SHA-256 over everything that a server receives about an item, except its key. */
export function hashItem(item: JudgeItem): string {
  const hash = createHash('sha256');
  const { instruction, answer = null, expected = null, finished } = item;
  hash.update(JSON.stringify({ instruction, answer, expected, finished }));
  for (const image of [item.source, item.edited, item.truth, item.mask ?? null]) addImage(hash, image);
  return hash.digest('hex');
}
