/**
 * Which connections a server keeps. A connection belongs to a stranger until a request with the token comes over it. Strangers have a small share and a
 * short life, and the newest of them gets in, so however many come, a client with the token reaches the server.
 */
import type { Socket } from 'node:net';

/**
 * Strangers have this share of places beside the others, and replies that stay open, such as event streams, this share of all. It has to be larger than
 * the number of connections that can be accepted before the first request of one of them is read.
 */
const SHARE = 1 / 4;

export class Connections {
  /** In the order in which they came, with the timer of each one's end. */
  readonly #strangers = new Map<Socket, NodeJS.Timeout>();
  /** Those whose last request has ended, the longest idle first. */
  readonly #idle = new Set<Socket>();
  /** With the number of requests under way. */
  readonly #busy = new Map<Socket, number>();
  /** Streams, the oldest first. */
  readonly #streams = new Set<Socket>();
  readonly #share: number;

  /**
   * @param limit connections of clients with the token.
   * @param strangerMs the life of a connection over which no request with the token comes.
   */
  constructor(
    private readonly limit: number,
    private readonly strangerMs: number,
  ) {
    this.#share = Math.max(1, Math.floor(limit * SHARE));
  }

  /** A new connection. */
  open(socket: Socket): void {
    const timer = setTimeout(() => socket.destroy(), this.strangerMs).unref();
    this.#strangers.set(socket, timer);
    socket.once('close', () => this.#forget(socket));
    const [oldest] = this.#strangers.keys();
    if (this.#strangers.size > this.#share) this.#drop(oldest);
  }

  /** A request with the token came over it. Returns false if there is no place for it because requests are under way over all others. */
  trust(socket: Socket): boolean {
    const timer = this.#strangers.get(socket);
    if (timer === undefined) return true;
    if (this.#busy.size + this.#idle.size >= this.limit) {
      const [longestIdle] = this.#idle;
      if (longestIdle === undefined) return false;
      this.#drop(longestIdle);
    }
    clearTimeout(timer);
    this.#strangers.delete(socket);
    this.#idle.add(socket);
    return true;
  }

  /** A request that is under way; call the returned function when it has ended. */
  begin(socket: Socket): () => void {
    if (socket.destroyed) return () => undefined;
    this.#idle.delete(socket);
    this.#busy.set(socket, (this.#busy.get(socket) ?? 0) + 1);
    return () => {
      const left = (this.#busy.get(socket) ?? 0) - 1;
      if (left > 0) {
        this.#busy.set(socket, left);
      } else if (this.#busy.delete(socket)) {
        this.#idle.add(socket);
      }
    };
  }

  /** Its reply stays open, until the returned function is called. The oldest stream gives way to one too many. */
  stream(socket: Socket): () => void {
    this.#streams.add(socket);
    const [oldest] = this.#streams;
    if (this.#streams.size > this.#share) this.#drop(oldest);
    return () => void this.#streams.delete(socket);
  }

  #drop(socket: Socket): void {
    this.#forget(socket);
    socket.destroy();
  }

  #forget(socket: Socket): void {
    clearTimeout(this.#strangers.get(socket));
    for (const held of [this.#strangers, this.#idle, this.#busy, this.#streams]) held.delete(socket);
  }
}
