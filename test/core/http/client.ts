/** A client that does what well-behaved ones never do: raw bytes over a connection of its own. */
import { connect, type Socket } from 'node:net';

export interface RawClient {
  readonly socket: Socket;
  /** What has come so far. */
  readonly text: () => string;
  readonly closed: Promise<void>;
}

export function dial(url: string, { reads = true } = {}): RawClient {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  let text = '';
  if (reads) socket.setEncoding('latin1').on('data', (piece: string) => (text += piece));
  else socket.pause();
  socket.on('error', () => undefined);
  return { socket, text: () => text, closed: new Promise((resolve) => socket.once('close', () => resolve())) };
}

/** Sends these lines as a request's head, and what follows; resolves with the status of the reply. */
export async function rawStatus(url: string, head: readonly string[], body = ''): Promise<number> {
  const client = dial(url);
  client.socket.write(`${[...head, 'connection: close'].join('\r\n')}\r\n\r\n${body}`);
  await client.closed;
  return Number(/^HTTP\/1\.1 (\d+)/.exec(client.text())?.[1] ?? 0);
}

export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('waited in vain');
}
