/**
 * The address of a server, held by this process: connections are accepted here and handed over unread. Nobody else can take the address while
 * the server is started again, and who connects meanwhile waits and is not refused, so that a restart costs no request more than those
 * which were under way.
 */
import { createServer, type Socket } from 'node:net';
import { listen } from '../../http/listen.js';
import type { GuardedChild } from '../processes/child.js';
import { MASTER_ADDRESS } from '../processes/supervise.js';

/** What the server's process says over its channel: once that it is up, then that it has taken a connection. */
export type FromServer = 'up' | 'taken';

export class Door {
  readonly #listener = createServer({ pauseOnConnect: true }, (socket) => this.#accept(socket));
  readonly #waiting: Socket[] = [];
  /** One at a time, so that it is known which of them a dying process took along. */
  #handed: Socket | null = null;
  /** The server, while it is up. */
  #server: GuardedChild | null = null;

  /** Listens on a free port; returns it. */
  open(name: string): Promise<number> {
    return listen(this.#listener, name, 0, MASTER_ADDRESS);
  }

  /** The server is up: it is given those who wait, and whoever comes. */
  leadTo(server: GuardedChild): void {
    this.#server = server;
    this.#handOver();
  }

  /** The server has taken the connection that it was given. */
  taken(): void {
    this.#handed = null;
    this.#handOver();
  }

  /** The server has ended, and has taken along the connection that it was being given. */
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
    // Who waits may also go away.
    socket.on('error', () => undefined);
    this.#waiting.push(socket);
    this.#handOver();
  }

  #handOver(): void {
    if (this.#server === null || this.#handed !== null) return;
    this.#handed = this.#waiting.shift() ?? null;
    // A process that has just ended takes nothing; its end says so.
    if (this.#handed !== null) this.#server.send('connection', this.#handed);
  }
}
