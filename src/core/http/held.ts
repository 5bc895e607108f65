/** What a server holds: bodies, bounded in size, in time and together; and replies, until their clients have read them or are gone. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Refusal } from './refusal.js';

/** The cost of each piece of a body besides its bytes: clients choose how small their pieces are. */
const pieceBytes = 256;

/** So much of a body has to come in each of its windows, or its end: some 50 kilobytes a second over 20 seconds. */
const leastBytes = 1_000_000;

/** Counts the bytes of all bodies, from their arrival to their release, and of all replies until they are read. */
export class HeldBytes {
  #held = 0;

  constructor(readonly limit: number) {}

  get held(): number {
    return this.#held;
  }

  /** The largest body or reply that can ever be held. */
  get most(): number {
    return this.limit / 4;
  }

  /** Room for one body that grows as it arrives, or one reply. */
  hold(): Hold {
    let own = 0;
    return {
      take: (bytes) => {
        // A body is never larger than the room that it leaves: there is room for small ones, however many large ones arrive.
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
  /** Raises Refusal if there is no room for this many more. */
  take(bytes: number): void;
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

export interface Reply {
  readonly status: number;
  /** The content type. */
  readonly type: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export function json(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, type: 'application/json', body: JSON.stringify(body), headers };
}

/** A page of metrics in Prometheus' text format. */
export function metricsPage(text: string): Reply {
  return { status: 200, type: 'text/plain; version=0.0.4; charset=utf-8', body: text };
}

/** How long, and how much of, the rest of a refused body is taken and thrown away, so that its sender comes to read the reply. */
const lingerMs = 2_000;
const lingerBytes = 10_000_000;
/** How long a client may leave its reply unread. */
const unreadMs = 60_000;

/**
 * Counts the reply as held until its client has read it or is gone; one that there is no room for becomes a refusal.
 * @param last whether the connection is closed behind the reply.
 */
export function send(
  request: IncomingMessage,
  response: ServerResponse,
  wanted: Reply,
  last: boolean,
  held: HeldBytes,
): void {
  const { socket } = request;
  if (response.destroyed || response.headersSent || socket.destroyed) return;
  const rest = !request.complete;
  const hold = held.hold();
  const reply = fitting(wanted, hold, held.most);
  let drop: NodeJS.Timeout | undefined;
  const done = (): void => {
    clearTimeout(drop);
    hold.release();
    response.off('close', done);
    socket.off('close', done);
  };
  response.once('close', done);
  // A reply that waits behind another one on its connection does not hear of the connection's end.
  socket.once('close', done);
  response.writeHead(reply.status, {
    ...reply.headers,
    'content-type': reply.type,
    'content-length': Buffer.byteLength(reply.body),
    ...(rest || last ? { connection: 'close' } : {}),
  });
  if (rest) {
    // Ending at once would reset the connection under a client that is still sending, and the reply would be lost.
    response.write(reply.body);
    const end = (): void => {
      clearTimeout(timer);
      response.end();
    };
    const timer = setTimeout(end, lingerMs);
    let left = lingerBytes;
    request.on('data', (piece: Buffer) => {
      left -= piece.length;
      if (left < 0) end();
    });
    request.once('end', end).once('error', end).once('close', end).resume();
  } else {
    response.end(reply.body);
  }
  if (response.writableLength === 0) done();
  else drop = setTimeout(() => socket.destroy(), unreadMs);
}

/** The reply, or a refusal if there is no room to hold it; a reply larger than anything that can be held counts as `most`. */
function fitting(reply: Reply, hold: Hold, most: number): Reply {
  try {
    hold.take(Math.min(Buffer.byteLength(reply.body), most));
    return reply;
  } catch (error) {
    // Refusals are small, and whoever waits has to hear of them.
    if (error instanceof Refusal) return json(error.status, error.body(), error.headers);
    throw error;
  }
}
