/** Who asks, as far as that cannot be chosen freely: by the address of the connection. */
import { isIPv6, type Socket } from 'node:net';
import { isLoopback } from './guard.js';

/** This machine has all of 127.0.0.0/8, and a host on IPv6 all of its /64. */
export function callerOf({ remoteAddress = '' }: Pick<Socket, 'remoteAddress'>): string {
  const plain = remoteAddress.replace(/^::ffff:/, '');
  if (isLoopback(plain)) return 'this machine';
  if (!isIPv6(plain)) return plain;
  const [head, tail] = plain.split('::', 2);
  const groups = head.split(':');
  const missing = tail === undefined ? 0 : 8 - groups.length - tail.split(':').length;
  return [...groups, ...Array<string>(Math.max(0, missing)).fill('0')].slice(0, 4).join(':');
}

/** Counts open connections, of which no caller has more than it leaves to all others. */
export class Connections {
  readonly #of = new Map<string, number>();
  #open = 0;

  constructor(readonly limit: number) {}

  /** Whether this one may be served; it counts until it is closed. */
  admits(socket: Socket): boolean {
    const caller = callerOf(socket);
    const own = (this.#of.get(caller) ?? 0) + 1;
    if (own > this.limit - this.#open) return false;
    this.#open++;
    this.#of.set(caller, own);
    socket.once('close', () => {
      this.#open--;
      const left = (this.#of.get(caller) ?? 1) - 1;
      if (left === 0) this.#of.delete(caller);
      else this.#of.set(caller, left);
    });
    return true;
  }
}
