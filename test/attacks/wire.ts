/** Raw requests of attackers, which a well-behaved client would not send. */
import { connect, type Socket } from 'node:net';
import { attackedModel } from './process.js';

export interface Address {
  readonly host: string;
  readonly port: number;
}

export function addressOf(url: string): Address {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

/** A chat request about these words. */
export function chatBody(words: string, more: Record<string, unknown> = {}): string {
  return JSON.stringify({ model: attackedModel, messages: [{ role: 'user', content: words }], ...more });
}

export function post(path: string, length: number, headers: Record<string, string> = {}): string {
  const all = { host: '127.0.0.1', 'content-type': 'application/json', 'content-length': String(length), ...headers };
  return `POST ${path} HTTP/1.1\r\n${Object.entries(all)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n`;
}

/** The status of a raw request's reply; see `replyOf`. */
export function statusOf(
  address: Address,
  head: string,
  body: Buffer | string = '',
  withinMs = 20_000,
): Promise<string> {
  const socket = open(address);
  const status = replyOf(socket, withinMs);
  socket.write(head);
  socket.write(body);
  return status;
}

/** The status of a connection's reply: a number, `reset` if the connection broke, `silent` if nothing came in time. Closes the connection. */
export function replyOf(socket: Socket, withinMs: number): Promise<string> {
  return new Promise((resolve) => {
    const end = (status: string): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(status);
    };
    const timer = setTimeout(() => end('silent'), withinMs);
    let read = '';
    socket.on('data', (piece: Buffer) => {
      read += piece.toString('latin1');
      const status = /^HTTP\/1\.1 (\d+)/.exec(read)?.[1];
      if (status !== undefined) end(status);
    });
    socket.on('close', () => end('reset'));
  });
}

/** Opens a connection whose errors are ignored. */
export function open({ host, port }: Address): Socket {
  const socket = connect(port, host);
  socket.on('error', () => undefined);
  return socket;
}

/** Writes as fast as the other side reads, until everything is sent or the connection is closed. */
export async function pour(socket: Socket, piece: Buffer, times: number): Promise<void> {
  for (let i = 0; i < times && !socket.destroyed; i++) {
    if (socket.write(piece)) continue;
    await new Promise<void>((resolve) => {
      const go = (): void => {
        socket.off('drain', go).off('close', go);
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(go, 2_000);
      socket.once('drain', go).once('close', go);
    });
  }
}

export function counted(statuses: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const status of statuses) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, count]) => `${count} x ${status}`).join(', ') || 'nothing';
}
