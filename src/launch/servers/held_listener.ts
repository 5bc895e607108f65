/**
 * Holds the address of a server in this process: connections are accepted here and handed over unread. Nobody else can take the address while the
 * server restarts, and clients that connect meanwhile wait instead of being refused, so that a restart loses only the requests that were under way.
 */
import { createServer, type Socket } from 'node:net';
import { listen } from '../../http/listen.js';
import type { GuardedChild } from '../processes/child.js';
import { MASTER_ADDRESS } from '../processes/supervise.js';

/** Messages from the server's process: first that it is up, then that it has taken a connection. */
export type FromServer = 'up' | 'taken';

export class HeldListener {
  readonly #listener = createServer({ pauseOnConnect: true }, (socket) => this.#accept(socket));
  readonly #waiting: Socket[] = [];
  /** One at a time, so that it is known which connection a dying process took along. */
  #handed: Socket | null = null;
  /** The server, while it is up. */
  #server: GuardedChild | null = null;

  /** Listens on a free port; returns it. */
  open(name: string): Promise<number> {
    return listen(this.#listener, name, 0, MASTER_ADDRESS);
  }

  /** The server is up: it gets the waiting connections and later ones. */
  serveWith(server: GuardedChild): void {
    this.#server = server;
    this.#handOver();
  }

  /** The server has taken the connection it was given. */
  connectionTaken(): void {
    this.#handed = null;
    this.#handOver();
  }

  /** The server has ended, along with the connection it was being given. */
  serverEnded(): void {
    this.#server = null;
    this.#handed?.destroy();
    this.#handed = null;
  }

  close(): void {
    this.#listener.close();
    for (const socket of this.#waiting.splice(0)) socket.destroy();
  }

  #accept(socket: Socket): void {
    // A waiting client may also disconnect.
    socket.on('error', () => undefined);
    this.#waiting.push(socket);
    this.#handOver();
  }

  #handOver(): void {
    if (this.#server === null || this.#handed !== null) return;
    this.#handed = this.#waiting.shift() ?? null;
    // A process that has just ended takes nothing; its exit is reported separately.
    if (this.#handed !== null) this.#server.send('connection', this.#handed);
  }
}
