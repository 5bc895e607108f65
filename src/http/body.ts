/** Reading a request's body: bounded in size, alone and together with all others, and all replies, that are held or still on their way. */
import type { IncomingMessage } from 'node:http';
import { Refusal } from './refusal.js';

/** What each piece of a body costs besides its bytes: clients choose how small their pieces are. */
const pieceBytes = 256;

/** Counts the bytes of all bodies, from their arrival to their release, and of all replies until they are read. */
export class HeldBytes {
  #held = 0;

  constructor(readonly limit: number) {}

  get held(): number {
    return this.#held;
  }

  /** The largest body or reply that can ever be held. */
  get most(): number {
    return this.limit / 2;
  }

  /** Room for one body that grows as it arrives, or one reply. */
  hold(): Hold {
    let own = 0;
    return {
      take: (bytes) => {
        // None is larger than the room that it leaves: however large bodies and replies crowd in, there is room for small ones.
        if (own + bytes > this.limit - this.#held - bytes) {
          throw new Refusal('busy', 'Other requests and unread replies fill the memory that is set aside for them.', {
            retryAfterS: 1,
          });
        }
        own += bytes;
        this.#held += bytes;
      },
      release: () => {
        this.#held -= own;
        own = 0;
      },
    };
  }
}

export interface Hold {
  /** Raises Refusal where there is no room for so many more. */
  take(bytes: number): void;
  release(): void;
}

/** Reads the whole body, counting it as it arrives. Raises Refusal for one that is too large or coded, or where the client breaks off. */
export async function readBody(request: IncomingMessage, limit: number, hold: Hold): Promise<Buffer> {
  const coding = request.headers['content-encoding'] ?? 'identity';
  if (coding !== 'identity') {
    // A few kilobytes may unpack to gigabytes, and images are compressed already.
    throw new Refusal('unsupported_media_type', `Content-Encoding ${coding} is not accepted: send the body as it is.`);
  }
  const tooLarge = (): Refusal =>
    new Refusal('too_large', `The body is larger than ${limit} bytes; send fewer or smaller images at once.`);
  if (Number(request.headers['content-length'] ?? 0) > limit) throw tooLarge();
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > limit) throw tooLarge();
      hold.take(piece.length + pieceBytes);
      pieces.push(piece);
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal('bad_request', 'The body broke off.');
  }
  return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces, size);
}
