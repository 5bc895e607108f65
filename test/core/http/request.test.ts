/** Bodies that are sent piece by piece. */
import type { IncomingHttpHeaders } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createHttpPool, type HttpPool } from '../../../src/core/http/pool.js';
import type { PiecewiseBody, WholeReply } from '../../../src/core/http/request.js';
import { listening, type Listening } from '../../support/stub_server.js';

const PIECES = 40;
const SIZE = 64 * 1024;

describe('a body in pieces', () => {
  let server: Listening;
  let pool: HttpPool;
  let cut = 0;
  const received: { headers: IncomingHttpHeaders; body: Buffer }[] = [];

  beforeAll(async () => {
    server = await listening((request, response) => {
      if (cut-- > 0) {
        request.once('data', () => request.socket.resetAndDestroy());
        return;
      }
      const pieces: Buffer[] = [];
      request.on('data', (piece: Buffer) => pieces.push(piece));
      request.on('end', () => {
        received.push({ headers: request.headers, body: Buffer.concat(pieces) });
        response.end('taken');
      });
    });
    pool = createHttpPool({ connections: 1, secret: null });
  });
  afterAll(async () => {
    await pool.close();
    await server.close();
  });

  /** More than a connection takes at once. */
  const body: PiecewiseBody = {
    byteLength: PIECES * SIZE,
    *[Symbol.iterator]() {
      for (let i = 0; i < PIECES; i++) yield new Uint8Array(SIZE).fill(i);
    },
  };
  const sent = (): Promise<WholeReply> =>
    pool.exchange(server.url, { method: 'POST', headers: { 'x-own': 'yes' }, body, signal: null });

  it('arrives whole, with its length', async () => {
    expect((await sent()).body.toString('utf8')).toBe('taken');
    const [{ headers, body: found }] = received;
    expect(headers).toMatchObject({ 'content-length': String(body.byteLength), 'x-own': 'yes' });
    expect(headers['transfer-encoding']).toBeUndefined();
    expect(found.equals(Buffer.concat([...body]))).toBe(true);
  });

  it('is sent again after a connection that broke in the middle of it', async () => {
    cut = 1;
    await expect(sent()).rejects.toThrow();
    expect((await sent()).status).toBe(200);
    expect(received.at(-1)?.body.equals(Buffer.concat([...body]))).toBe(true);
  });
});
