/** Bodies and replies that a server keeps in memory. Bodies are limited in size, in time and in total, replies until their clients have read them. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Refusal } from './refusal.js';

/** Cost of each chunk of a body in addition to its bytes: clients choose how small their chunks are. */
const CHUNK_BYTES = 256;
/** A body must grow by this much in each window, or end: about 50 kB a second over 20 seconds. */
const MIN_WINDOW_BYTES = 1_000_000;

/** Counts the bytes of all bodies from their arrival to their release, and of all replies until they are read. */
export class HeldBytes {
  #held = 0;

  constructor(readonly limit: number) {}

  get held(): number {
    return this.#held;
  }

  /** The largest body or reply. */
  get most(): number {
    return this.limit / 4;
  }

  /** Room for one body that grows as it arrives, or for one reply. */
  hold(): Hold {
    let own = 0;
    return {
      take: (bytes) => {
        // A body never exceeds the room that it leaves, so small bodies fit however many large ones arrive.
        if (own + bytes > this.limit - this.#held - bytes) {
          const message = 'Other requests and unread replies fill the memory that is set aside for them.';
          throw new Refusal('busy', message, { retryAfterS: 1 });
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

interface Hold {
  /** Raises Refusal if there is no room for this many more bytes. */
  take(bytes: number): void;
  release(): void;
}

export interface BodyLimits {
  readonly bytes: number;
  /** The maximum cost of a body with its chunks. There is never room for more. */
  readonly most: number;
  /** The time in which a body must grow, or end. */
  readonly windowMs: number;
  /** The time for the whole body. */
  readonly wholeMs: number;
}

/** Reads the whole body and counts it as it arrives. Raises Refusal if it is too large, too slow or compressed, or if the client disconnects. */
export function readBody(request: IncomingMessage, limits: BodyLimits, hold: Hold): Promise<Buffer> {
  const { bytes: limit, most, windowMs, wholeMs } = limits;
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let [size, cost, sizeBefore] = [0, 0, 0];
    const settle = (): void => {
      clearInterval(timer);
      clearTimeout(whole);
      request.off('data', take).off('end', end).off('error', disconnected).off('close', disconnected).pause();
    };
    const fail = (error: Error): void => {
      settle();
      reject(error);
    };
    const tooLarge = (): Refusal =>
      new Refusal(
        'too_large',
        `The body is larger than ${limit} bytes, where each of its chunks counts ${CHUNK_BYTES} more. Send fewer or smaller images at once.`,
      );
    const take = (chunk: Buffer): void => {
      size += chunk.length;
      cost += chunk.length + CHUNK_BYTES;
      try {
        if (size > limit || cost > most) throw tooLarge();
        hold.take(chunk.length + CHUNK_BYTES);
        chunks.push(chunk);
      } catch (error) {
        fail(error as Refusal);
      }
    };
    const end = (): void => {
      settle();
      resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, size));
    };
    const disconnected = (): void => fail(new Refusal('bad_request', 'The body ended early.'));
    const timer = setInterval(() => {
      const grown = size - sizeBefore;
      sizeBefore = size;
      if (grown >= MIN_WINDOW_BYTES) return;
      fail(new Refusal('too_slow', `The body arrives too slowly: ${grown} bytes within ${windowMs / 1000} s.`));
    }, windowMs);
    const whole = setTimeout(
      () => fail(new Refusal('too_slow', `The body took more than ${wholeMs / 1000} s.`)),
      wholeMs,
    );
    const packed = packedBody(request);
    if (packed !== null) fail(packed);
    else if (Number(request.headers['content-length'] ?? 0) > limit) fail(tooLarge());
    else if (request.destroyed) disconnected();
    else request.on('data', take).on('end', end).on('error', disconnected).on('close', disconnected);
  });
}

/** A few kilobytes may unpack to gigabytes, and images are compressed already. Null for a plain body. */
function packedBody({ headers }: IncomingMessage): Refusal | null {
  const coding = headers['content-encoding'] ?? 'identity';
  if (coding === 'identity') return null;
  return new Refusal('unsupported_media_type', `Content-Encoding ${coding} is not accepted: send the plain body.`);
}

/** One line of a body that is not empty, without its end. It counts as held until it is released. */
export interface HeldLine {
  readonly bytes: Buffer;
  readonly release: () => void;
}

/**
 * The lines of a body while it arrives. Reads on only when the next line is wanted, so that a slow reader slows the sender down. Raises Refusal
 * if a line is too large, if there is no room for it, if nothing arrives for `windowMs`, or if the client disconnects.
 */
export async function* readLines(
  request: IncomingMessage,
  { bytes: limit, windowMs }: Pick<BodyLimits, 'bytes' | 'windowMs'>,
  held: HeldBytes,
): AsyncGenerator<HeldLine, void> {
  const packed = packedBody(request);
  if (packed !== null) throw packed;
  let hold = held.hold();
  let parts: Buffer[] = [];
  let size = 0;
  const line = (): HeldLine => {
    const taken = hold;
    const whole = { bytes: parts.length === 1 ? parts[0] : Buffer.concat(parts, size), release: () => taken.release() };
    [hold, parts, size] = [held.hold(), [], 0];
    return whole;
  };
  const add = (part: Buffer): void => {
    size += part.length;
    if (size > limit) throw new Refusal('too_large', `A line is larger than ${limit} bytes. Send smaller images.`);
    hold.take(part.length + CHUNK_BYTES);
    parts.push(part);
  };
  try {
    for await (const chunk of chunksOf(request, windowMs)) {
      let start = 0;
      for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
        add(chunk.subarray(start, end));
        start = end + 1;
        if (size > 0) yield line();
      }
      add(chunk.subarray(start));
    }
    if (size > 0) yield line();
  } finally {
    hold.release();
  }
}

const NEWLINE = 10;

/** The chunks of a body. The connection stays open for a reply if the reader ends early. Raises Refusal. */
async function* chunksOf(request: IncomingMessage, windowMs: number): AsyncGenerator<Buffer, void> {
  const chunks = request.iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_, reject) => {
        const error = new Refusal('too_slow', `Nothing of the body arrived within ${windowMs / 1000} s.`);
        timer = setTimeout(() => reject(error), windowMs);
      });
      const next = await Promise.race([chunks.next(), late])
        .catch((error: unknown) => {
          throw error instanceof Refusal ? error : new Refusal('bad_request', 'The body ended early.');
        })
        .finally(() => clearTimeout(timer));
      if (next.done === true) return;
      yield next.value as Buffer;
    }
  } finally {
    // Until then the iterator holds back the rest of the body. If a chunk is late, this waits for it.
    void chunks.return?.();
  }
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

/** How long, and how much of, the rest of a rejected body is read and dropped, so that its sender gets to read the reply. */
const LINGER_MS = 2_000;
const LINGER_BYTES = 10_000_000;
/** Milliseconds that a client may leave its reply unread. */
const UNREAD_MS = 60_000;

/**
 * Counts the reply as held until its client has read it or has disconnected. If there is no room for the reply, sends a refusal.
 * @param last whether the connection is closed after the reply.
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
  const isIncomplete = !request.complete;
  const hold = held.hold();
  let reply = wanted;
  try {
    hold.take(Math.min(Buffer.byteLength(wanted.body), held.most));
  } catch (error) {
    // A refusal is small, and the client has to get it.
    if (!(error instanceof Refusal)) throw error;
    reply = json(error.status, error.body(), error.headers);
  }
  let drop: NodeJS.Timeout | undefined;
  const done = (): void => {
    clearTimeout(drop);
    hold.release();
    response.off('close', done);
    socket.off('close', done);
  };
  response.once('close', done);
  // A reply that waits behind another one on its connection gets no event when the connection ends.
  socket.once('close', done);
  response.writeHead(reply.status, {
    ...reply.headers,
    'content-type': reply.type,
    'content-length': Buffer.byteLength(reply.body),
    ...(isIncomplete || last ? { connection: 'close' } : {}),
  });
  if (isIncomplete) {
    // Ending at once would reset the connection of a client that is still sending, and it would lose the reply.
    response.write(reply.body);
    const end = (): void => {
      clearTimeout(timer);
      response.end();
    };
    const timer = setTimeout(end, LINGER_MS);
    let left = LINGER_BYTES;
    request.on('data', (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) end();
    });
    request.once('end', end).once('error', end).once('close', end).resume();
  } else response.end(reply.body);
  if (response.writableLength === 0) done();
  else drop = setTimeout(() => socket.destroy(), UNREAD_MS);
}
