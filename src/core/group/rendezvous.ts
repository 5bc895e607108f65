/** How the ranks of a process group connect: who may join, how long they wait, and the error if some do not connect. */
import { timingSafeEqual } from 'node:crypto';
import { createServer, Socket } from 'node:net';
import { RunError } from '../errors.js';

/** The ranks cannot connect, or one of them disconnected. */
export class ProcessGroupError extends RunError {}

export interface Rendezvous {
  readonly rank: number;
  readonly size: number;
  readonly address: string;
  readonly port: number;
  /** Unknown to strangers on the same port. */
  readonly token: string;
  readonly timeoutMs: number;
}

interface Hello {
  readonly rank: number;
  readonly size: number;
  readonly token: string;
}

const HELLO_MAX_BYTES = 4096;
const RETRY_MS = 25;

/** Rank 0's side: listens until all other ranks have connected. */
export async function accept(place: Rendezvous): Promise<Map<number, Wire>> {
  const { size, address, port, timeoutMs } = place;
  const joined = new Map<number, Wire>();
  const strangers = new Set<Wire>();
  const server = createServer();
  const missing = (): number[] => Array.from({ length: size - 1 }, (_, i) => i + 1).filter((r) => !joined.has(r));
  let timer: NodeJS.Timeout | undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      timer = setTimeout(() => {
        const refused = strangers.size > 0 ? `; ${strangers.size} connections were rejected` : '';
        reject(
          new ProcessGroupError(
            `rank${missing().length > 1 ? 's' : ''} ${missing().join(', ')} of ${size} did not connect within ${timeoutMs / 1000} s${refused}`,
            {
              where: `${address}:${port}`,
              next: 'Check their logs: they may have failed before they could connect.',
            },
          ),
        );
      }, timeoutMs);
      server.on('error', (cause) => {
        reject(
          new ProcessGroupError(`rank 0 cannot listen: ${cause.message}`, {
            where: `${address}:${port}`,
            next: 'Choose another MASTER_PORT.',
            cause,
          }),
        );
      });
      server.on('connection', (socket) => {
        const wire = new Wire(socket);
        strangers.add(wire);
        admit(wire, place, joined).then(
          (rank) => {
            strangers.delete(wire);
            if (rank !== null) joined.set(rank, wire);
            if (joined.size === size - 1) resolve();
          },
          (error: unknown) => {
            if (error instanceof Error && !(error instanceof Disconnected)) reject(error);
          },
        );
      });
      server.listen(port, address);
    });
    await Promise.all([...joined.values()].map((wire) => wire.send('welcome', 0, [])));
    return joined;
  } catch (error) {
    const why = Buffer.from(error instanceof Error ? error.message : String(error));
    await Promise.allSettled([...joined.values()].map((wire) => wire.send('failure', 0, [why])));
    for (const wire of joined.values()) wire.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
    for (const wire of strangers) wire.destroy();
    server.close();
  }
}

/** The rank of a connection. Null if the connection was rejected. */
async function admit(wire: Wire, place: Rendezvous, joined: ReadonlyMap<number, Wire>): Promise<number | null> {
  const header = await wire.header();
  if (header?.kind !== 'hello' || header.bytes > HELLO_MAX_BYTES) return refuse(wire, 'it is not a rank of this run');
  const bytes = Buffer.alloc(header.bytes);
  await wire.fill(bytes);
  const hello = parseHello(bytes.toString('utf8'));
  if (hello === null || !sameToken(hello.token, place.token)) return refuse(wire, 'EDITRL_GROUP_TOKEN differs');
  if (hello.size !== place.size) return refuse(wire, `WORLD_SIZE is ${hello.size}, rank 0 has ${place.size}`);
  if (!(hello.rank >= 1 && hello.rank < place.size)) return refuse(wire, `there is no rank ${hello.rank}`);
  if (joined.has(hello.rank)) return refuse(wire, `rank ${hello.rank} is connected already`);
  return hello.rank;
}

async function refuse(wire: Wire, why: string): Promise<null> {
  await wire.send('failure', 0, [Buffer.from(`rank 0 rejected the connection: ${why}`)]);
  wire.socket.end();
  return null;
}

/** The other ranks' side: tries until rank 0 listens, and returns when all have connected. */
export async function connect(place: Rendezvous): Promise<Wire> {
  const { rank, size, token, address, port } = place;
  const until = performance.now() + place.timeoutMs;
  const wire = await connectUntil(place, until);
  // Rank 0 reports who is missing when its own time is over. This covers a listener that never answers.
  const timer = setTimeout(() => wire.destroy(), until + 5_000 - performance.now());
  try {
    const hello: Hello = { rank, size, token };
    await wire.send('hello', 0, [Buffer.from(JSON.stringify(hello))]);
    const header = await wire.header();
    if (header?.kind === 'welcome') return wire;
    const text = header?.kind === 'failure' ? Buffer.alloc(Math.min(header.bytes, HELLO_MAX_BYTES)) : null;
    if (text !== null) await wire.fill(text);
    wire.destroy();
    throw new ProcessGroupError(text?.toString('utf8') ?? 'this port does not belong to rank 0 of this run', {
      where: `${address}:${port}`,
    });
  } catch (error) {
    if (!(error instanceof Disconnected)) throw error;
    throw new ProcessGroupError(`rank 0 disconnected before all ranks had connected: ${error.message}`, {
      where: `${address}:${port}`,
      next: "Check rank 0's log.",
      cause: error,
    });
  } finally {
    clearTimeout(timer);
  }
}

async function connectUntil({ address, port, timeoutMs }: Rendezvous, until: number): Promise<Wire> {
  for (;;) {
    const socket = new Socket();
    const failure = await new Promise<Error | null>((resolve) => {
      socket.once('error', resolve);
      socket.connect(port, address, () => resolve(null));
    });
    if (failure === null) return new Wire(socket);
    socket.destroy();
    if (performance.now() > until) {
      throw new ProcessGroupError(`rank 0 did not listen within ${timeoutMs / 1000} s: ${failure.message}`, {
        where: `${address}:${port}`,
        next: "Check rank 0's log: it may have failed before it could listen.",
        cause: failure,
      });
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function parseHello(text: string): Hello | null {
  try {
    const value = JSON.parse(text) as Partial<Hello>;
    const whole = Number.isInteger(value.rank) && Number.isInteger(value.size) && typeof value.token === 'string';
    return whole ? (value as Hello) : null;
  } catch {
    return null;
  }
}

function sameToken(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** The kind of a frame's content. Both ends of a collective must agree. */
export const frameKinds = { hello: 1, welcome: 2, failure: 3, value: 4, values: 5, arrays: 6 } as const;
export type FrameKind = keyof typeof frameKinds;

export interface FrameHeader {
  readonly kind: FrameKind;
  /** The number of the frame's collective. */
  readonly sequence: number;
  /** The length of the following content. */
  readonly bytes: number;
}

/** The other end closed the connection, or it failed. */
export class Disconnected extends Error {}

const HEADER_BYTES = 16;
const kindNames = new Map<number, FrameKind>(
  (Object.keys(frameKinds) as FrameKind[]).map((kind) => [frameKinds[kind], kind]),
);

/** One connection. Reads are pulled, so an end that does not read slows the other one down instead of filling memory. */
export class Wire {
  #rest: Buffer | null = null;
  #ended: Error | null = null;
  #wake: (() => void) | null = null;

  constructor(readonly socket: Socket) {
    socket.setNoDelay(true);
    const wake = (): void => {
      this.#wake?.();
      this.#wake = null;
    };
    const end = (why: string): void => {
      this.#ended ??= new Disconnected(why);
      wake();
    };
    socket.on('readable', wake);
    socket.on('end', () => end('it closed the connection'));
    socket.on('close', () => end('the connection is closed'));
    socket.on('error', (error) => end(error.message));
  }

  /** Resolves when the operating system has all of it. Until then the parts must not change. */
  async send(kind: FrameKind, sequence: number, parts: readonly Uint8Array[]): Promise<void> {
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt32LE(frameKinds[kind], 0);
    header.writeUInt32LE(sequence, 4);
    header.writeDoubleLE(totalBytes(parts), 8);
    if (this.#ended !== null) throw this.#ended;
    await new Promise<void>((resolve, reject) => {
      this.socket.cork();
      this.socket.write(header);
      for (const part of parts) if (part.byteLength > 0) this.socket.write(part);
      // Called when everything before it is written, or with the error that prevented it.
      this.socket.write(Buffer.alloc(0), (error) =>
        error === null || error === undefined ? resolve() : reject(new Disconnected(error.message)),
      );
      this.socket.uncork();
    });
  }

  /** The next frame's header. Null if these bytes are not a header. */
  async header(): Promise<FrameHeader | null> {
    const bytes = Buffer.alloc(HEADER_BYTES);
    await this.fill(bytes);
    const kind = kindNames.get(bytes.readUInt32LE(0));
    const length = bytes.readDoubleLE(8);
    if (kind === undefined || !Number.isSafeInteger(length) || length < 0) return null;
    return { kind, sequence: bytes.readUInt32LE(4), bytes: length };
  }

  /** Fills `target`. Raises Disconnected. */
  async fill(target: Uint8Array): Promise<void> {
    let at = 0;
    while (at < target.length) {
      const chunk = this.#rest ?? (this.socket.read() as Buffer | null);
      this.#rest = null;
      if (chunk === null) {
        if (this.#ended !== null) throw this.#ended;
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      const taken = Math.min(chunk.length, target.length - at);
      target.set(taken === chunk.length ? chunk : chunk.subarray(0, taken), at);
      if (taken < chunk.length) this.#rest = chunk.subarray(taken);
      at += taken;
    }
  }

  destroy(): void {
    this.socket.destroy();
  }
}

export function totalBytes(parts: readonly Uint8Array[]): number {
  return parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** A view of an array's memory as bytes. */
export function bytesOf(array: Float32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
