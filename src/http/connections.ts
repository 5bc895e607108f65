import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Which connections have a request under way. Node's own list of idle ones lacks those on which nothing was asked yet, such as clients open
 * ahead of their next request: a server that stops would wait for them.
 */
export class Connections {
  readonly #underWay = new Map<Socket, number>();

  opened(socket: Socket): void {
    this.#underWay.set(socket, 0);
    socket.once('close', () => this.#underWay.delete(socket));
  }

  /** Counts a request until its reply is over. */
  busy(socket: Socket, response: ServerResponse): void {
    this.#count(socket, 1);
    response.once('close', () => this.#count(socket, -1));
  }

  dropIdle(): void {
    for (const [socket, count] of this.#underWay) if (count === 0) socket.destroy();
  }

  #count(socket: Socket, change: number): void {
    const count = this.#underWay.get(socket);
    if (count !== undefined) this.#underWay.set(socket, count + change);
  }
}
