/** What an exchange that gave no reply says about its upstream. */
import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { createHttpPool } from '../../../src/core/http/pool.js';
import { errorKindOf, exchange, meaningOf } from '../../../src/rewards/gateway/chat.js';

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

const maxResponseSize = 1000;

/** Where a server listens that does this with every connection. */
async function listen(serve: (socket: Socket) => void): Promise<{ readonly server: Server; readonly url: string }> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` };
}

async function ask(url: string, body = Buffer.from('{}')) {
  const pool = createHttpPool({ connections: 1, secret: null, maxResponseBytes: maxResponseSize });
  closing.push(() => pool.close());
  const never = new AbortController().signal;
  const found = await exchange({ url, body, key: null, pool, caller: never, deadline: never });
  return { error: errorKindOf(found), meaning: meaningOf(found) };
}

const answering =
  (text: string) =>
  (socket: Socket): void =>
    void socket.once('data', () => socket.end(text));

it.each<[string, (socket: Socket) => void, number]>([
  ['is too large', answering(`HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n${'x'.repeat(5000)}`), 2],
  ['has headers that are too large', answering(`HTTP/1.1 200 OK\r\nx: ${'x'.repeat(40_000)}\r\n\r\n`), 2],
  ['is no HTTP', answering('good morning\r\n\r\n'), 2],
  ['is shorter than announced', answering('HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{'), 2],
  ['is none: reset after the request', (socket) => void socket.once('data', () => socket.resetAndDestroy()), 2],
  [
    'is none: reset within a large request',
    (socket) => void socket.once('data', () => socket.resetAndDestroy()),
    20_000_000,
  ],
])('a reply that %s may be the fault of its request', async (_what, serve, bytes) => {
  const { server, url } = await listen(serve);
  closing.push(() => new Promise((resolve) => server.close(resolve)));
  expect(await ask(url, Buffer.alloc(bytes, 'x'))).toEqual({ error: 'bad_reply', meaning: 'doubtful' });
});

it('a server that is missing fails', async () => {
  const { server, url } = await listen(() => undefined);
  await new Promise((resolve) => server.close(resolve));
  expect(await ask(url)).toEqual({ error: 'connection', meaning: 'failed' });
});
