/** Reading a request's body: bounded in size, alone and together with all others that are held. */
import type { IncomingMessage } from 'node:http';
import { Refusal } from './refusal.js';

/** Counts the bytes of all bodies that are held at once. */
export class HeldBytes {
  #held = 0;

  constructor(readonly limit: number) {}

  get held(): number {
    return this.#held;
  }

  /** Raises Refusal where there is no room for them. */
  take(bytes: number): void {
    if (this.#held + bytes > this.limit) {
      throw new Refusal('busy', 'The bodies of other requests fill the memory that is set aside for them.', {
        'retry-after': '1',
      });
    }
    this.#held += bytes;
  }

  release(bytes: number): void {
    this.#held -= bytes;
  }
}

/** A body, which counts as held until it is released. */
export interface Body {
  readonly bytes: Buffer;
  release(): void;
}

/** Reads the whole body. Raises Refusal for one that is too large or coded, or where the client breaks off. */
export async function readBody(request: IncomingMessage, limit: number, held: HeldBytes): Promise<Body> {
  const coding = request.headers['content-encoding'] ?? 'identity';
  if (coding !== 'identity') {
    // A few kilobytes may unpack to gigabytes, and images are compressed already.
    throw new Refusal('unsupported_media_type', `Content-Encoding ${coding} is not accepted: send the body as it is.`);
  }
  const tooLarge = (): Refusal =>
    new Refusal('too_large', `The body is larger than ${limit} bytes; send fewer items at once, or smaller images.`);
  if (Number(request.headers['content-length'] ?? 0) > limit) throw tooLarge();
  const pieces: Buffer[] = [];
  let size = 0;
  let taken = 0;
  const release = (): void => {
    held.release(taken);
    taken = 0;
  };
  try {
    for await (const piece of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > limit) throw tooLarge();
      held.take(piece.length);
      taken += piece.length;
      pieces.push(piece);
    }
  } catch (error) {
    release();
    if (error instanceof Refusal) throw error;
    throw new Refusal('bad_request', 'The body broke off.');
  }
  return { bytes: Buffer.concat(pieces, size), release };
}
