/** Binary frames over one connection of a process group: a header of 16 bytes, then bytes that are read straight into place. */
import type { Socket } from 'node:net';

/** The kind of a frame's content; both ends of a collective must agree. */
export const frameKinds = { hello: 1, welcome: 2, failure: 3, value: 4, values: 5, arrays: 6 } as const;
export type FrameKind = keyof typeof frameKinds;

export interface FrameHeader {
  readonly kind: FrameKind;
  /** The number of the collective that the frame belongs to. */
  readonly sequence: number;
  /** The length of the content that follows. */
  readonly bytes: number;
}

/** The other end closed the connection, or it broke. */
export class Disconnected extends Error {}

const HEADER_BYTES = 16;
const kindNames = new Map<number, FrameKind>(
  (Object.keys(frameKinds) as FrameKind[]).map((kind) => [frameKinds[kind], kind]),
);

/** One connection. Reads are pulled, so that an end that is not reading slows the other one down instead of filling memory. */
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

  /** Resolves when the operating system has all of it; until then the parts must not change. */
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
      // Called after everything before it is written, or with the error that prevented it.
      this.socket.write(Buffer.alloc(0), (error) =>
        error === null || error === undefined ? resolve() : reject(new Disconnected(error.message)),
      );
      this.socket.uncork();
    });
  }

  /** The next frame's header; `null` where these bytes are none. */
  async header(): Promise<FrameHeader | null> {
    const bytes = Buffer.alloc(HEADER_BYTES);
    await this.fill(bytes);
    const kind = kindNames.get(bytes.readUInt32LE(0));
    const length = bytes.readDoubleLE(8);
    if (kind === undefined || !Number.isSafeInteger(length) || length < 0) return null;
    return { kind, sequence: bytes.readUInt32LE(4), bytes: length };
  }

  /** Reads exactly as many bytes as `target` holds. Raises Disconnected. */
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

/** The same memory as bytes. */
export function bytesOf(array: Float32Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
