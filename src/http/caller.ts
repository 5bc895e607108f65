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
