/** Reading a request's body: bounded in size, in time, and together with all others, and all replies, that are held or still on their way. */
import type { IncomingMessage } from 'node:http';
import { Refusal } from './refusal.js';

/** The cost of each piece of a body besides its bytes: clients choose how small their pieces are. */
const pieceBytes = 256;

/** So much of a body has to come in each of its windows, or its end: some 50 kilobytes a second over 20 seconds. */
const leastBytes = 1_000_000;

/** Counts the bytes of all bodies, from their arrival to their release, and of all replies until they are read. */
export class HeldBytes {
  #held = 0;
  /** Bytes under way from each caller and to it. */
  readonly #moving = new Map<string, number>();

  constructor(readonly limit: number) {}

  get held(): number {
    return this.#held;
  }

  /** The largest body or reply that can ever be held. */
  get most(): number {
    return this.limit / 4;
  }

  /** Room for one body that grows as it arrives, or one reply. */
  hold(caller: string): Hold {
    let own = 0;
    let moving = 0;
    const move = (bytes: number): void => {
      moving += bytes;
      const all = this.#movingOf(caller) + bytes;
      if (all === 0) this.#moving.delete(caller);
      else this.#moving.set(caller, all);
    };
    return {
      take: (bytes) => {
        // Half may be on its way from one caller, so that nobody who leaves it there shuts out the bodies of others.
        if (!fits(own, bytes, this.limit - this.#held) || !fits(own, bytes, this.limit / 2 - this.#movingOf(caller))) {
          throw new Refusal('busy', 'Other requests and unread replies fill the memory that is set aside for them.', {
            retryAfterS: 1,
          });
        }
        own += bytes;
        this.#held += bytes;
        move(bytes);
      },
      arrived: () => move(-moving),
      release: () => {
        move(-moving);
        this.#held -= own;
        own = 0;
      },
    };
  }

  #movingOf(caller: string): number {
    return this.#moving.get(caller) ?? 0;
  }
}

/**
 * Whether this many bytes may be added to a body. A body is never larger than the room that it leaves, so that there is room for small ones however
 * many large ones arrive.
 */
function fits(own: number, bytes: number, free: number): boolean {
  return own + bytes <= free - bytes;
}

export interface Hold {
  /** Raises Refusal if there is no room for this many more. */
  take(bytes: number): void;
  /** It is no longer on its way, and held all the same. */
  arrived(): void;
  release(): void;
}

export interface BodyLimits {
  /** The largest body. */
  readonly bytes: number;
  /** The maximum cost of a body, including its pieces: there is never room for more, whatever else is held. */
  readonly most: number;
  /** The time in which a body has to come on, or to end. */
  readonly windowMs: number;
}

/** Reads the whole body, counting it as it arrives. Raises Refusal if it is too large, too slow or encoded, or if the client disconnects. */
export function readBody(
  request: IncomingMessage,
  { bytes: limit, most, windowMs }: BodyLimits,
  hold: Hold,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    let size = 0;
    let cost = 0;
    let seen = 0;
    const settle = (): void => {
      clearInterval(timer);
      request.off('data', take).off('end', end).off('error', brokeOff).off('close', brokeOff).pause();
    };
    const fail = (refusal: Error): void => {
      settle();
      reject(refusal);
    };
    const tooLarge = (): Refusal =>
      new Refusal(
        'too_large',
        `The body is larger than ${limit} bytes, where each piece that it comes in counts ${pieceBytes} more; send fewer or smaller images at once.`,
      );
    const take = (piece: Buffer): void => {
      size += piece.length;
      try {
        cost += piece.length + pieceBytes;
        if (size > limit || cost > most) throw tooLarge();
        hold.take(piece.length + pieceBytes);
      } catch (refusal) {
        fail(refusal as Refusal);
        return;
      }
      pieces.push(piece);
    };
    const end = (): void => {
      settle();
      hold.arrived();
      resolve(pieces.length === 1 ? pieces[0] : Buffer.concat(pieces, size));
    };
    const brokeOff = (): void => fail(new Refusal('bad_request', 'The body broke off.'));
    const timer = setInterval(() => {
      if (size - seen < leastBytes) {
        fail(new Refusal('too_slow', `The body comes too slowly: ${size - seen} bytes within ${windowMs / 1000} s.`));
      }
      seen = size;
    }, windowMs);
    const coding = request.headers['content-encoding'] ?? 'identity';
    if (coding !== 'identity') {
      // A few kilobytes may unpack to gigabytes, and images are compressed already.
      fail(
        new Refusal('unsupported_media_type', `Content-Encoding ${coding} is not accepted: send the body as it is.`),
      );
    } else if (Number(request.headers['content-length'] ?? 0) > limit) {
      fail(tooLarge());
    } else if (request.destroyed) {
      brokeOff();
    } else {
      request.on('data', take).on('end', end).on('error', brokeOff).on('close', brokeOff);
    }
  });
}
