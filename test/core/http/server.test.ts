/** The server under all servers, with routes that a test writes, asked by clients that do as they like. */
import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../src/core/errors.js';
import { Refusal } from '../../../src/core/http/refusal.js';
import { json } from '../../../src/core/http/body.js';
import { HttpServer, type HttpLimits, type Route } from '../../../src/core/http/server.js';
import { dial, rawStatus, until, type RawClient } from './client.js';

const servers: HttpServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

const roomy: HttpLimits = {
  bodyBytes: 1e6,
  heldBytes: 4e6,
  connections: 100,
  headersTimeoutMs: 5_000,
  requestTimeoutMs: 5_000,
  bodyWindowMs: 5_000,
  timeoutCheckMs: 50,
  drainTimeoutMs: 5_000,
};

const token = 'a-token-of-the-test';

interface Given {
  readonly limits?: Partial<HttpLimits>;
  readonly token?: string | null;
  readonly host?: string;
  readonly onDefect?: (error: unknown) => void;
}

async function serve(routes: Readonly<Record<string, Route>>, given: Given = {}) {
  const server = new HttpServer({
    name: 'the test',
    host: given.host ?? '127.0.0.1',
    token: given.token ?? null,
    routes,
    prefix: '/run/',
    limits: { ...roomy, ...given.limits },
    onDefect: given.onDefect ?? (() => undefined),
  });
  servers.push(server);
  return { server, url: await server.listen(0) };
}

const echo: Readonly<Record<string, Route>> = {
  '/open': { open: true, GET: ({ trusted }) => json(200, { trusted }) },
  '/echo': {
    GET: ({ scope, query }) => json(200, { scope, query: [...query] }),
    POST: async ({ read }) => json(200, { bytes: (await read()).length }),
  },
  '/things/': { GET: ({ rest, scope }) => json(200, { rest, scope }) },
};

async function ask(url: string, init: RequestInit = {}) {
  const reply = await fetch(url, init);
  return { status: reply.status, headers: reply.headers, body: (await reply.json()) as Record<string, unknown> };
}

describe('routes', () => {
  it.each<[string, string, number, unknown]>([
    ['GET', '/echo', 200, { scope: null, query: [] }],
    ['GET', '/echo?a=1', 200, { scope: null, query: [['a', '1']] }],
    ['GET', '/run/a_run/echo', 200, { scope: 'a_run', query: [] }],
    ['GET', '/things/Qwen/Qwen2.5-VL', 200, { rest: 'Qwen/Qwen2.5-VL', scope: null }],
    ['GET', '/run/x/things/Qwen%2FQwen2.5-VL', 200, { rest: 'Qwen/Qwen2.5-VL', scope: 'x' }],
    ['GET', '/things/', 404, undefined],
    ['GET', '/things', 404, undefined],
    ['GET', '/things/%E0%A4%A', 404, undefined],
    ['GET', '//', 404, undefined],
    ['GET', '//echo', 404, undefined],
    ['GET', '/run/', 404, undefined],
    ['GET', '/run/x', 404, undefined],
    ['GET', 'http://[/', 404, undefined],
    ['GET', 'http://127.0.0.1/echo', 200, undefined],
    ['OPTIONS', '*', 404, undefined],
    ['GET', '/constructor', 404, undefined],
    ['GET', '/__proto__', 404, undefined],
    ['DELETE', '/echo', 405, undefined],
    ['OPEN', '/open', 400, undefined],
    ['POST', '/open', 405, undefined],
  ])('%s %s: %i', async (method, path, status, body) => {
    const defects: unknown[] = [];
    const { url } = await serve(echo, { onDefect: (error) => defects.push(error) });
    expect(await rawStatus(url, [`${method} ${path} HTTP/1.1`, 'host: localhost', 'content-length: 0'])).toBe(status);
    expect(defects).toEqual([]);
    if (body !== undefined) expect((await ask(`${url}${path}`)).body).toEqual(body);
  });

  it('answer in the form of OpenAI, and say what is allowed', async () => {
    const { url } = await serve(echo);
    const { headers, body } = await ask(`${url}/echo`, { method: 'PUT' });
    expect(headers.get('allow')).toBe('GET, POST');
    expect(body).toEqual({
      error: { message: 'This path takes GET, POST.', type: 'MethodNotAllowedError', param: null, code: 405 },
    });
  });

  it('that fail tell the client nothing and their owner all', async () => {
    const defects: unknown[] = [];
    const defect = new Error('secret-of-a-defect');
    const fail = (): never => {
      throw defect;
    };
    const { url, server } = await serve({ '/a': { GET: fail } }, { onDefect: (error) => defects.push(error) });
    const { status, body } = await ask(`${url}/a`);
    expect(status).toBe(500);
    expect(JSON.stringify(body)).not.toContain('secret');
    expect(defects).toEqual([defect]);
    await ask(`${url}/b`);
    expect(server.replies.samples()).toEqual([
      { labels: { path: '/a', status: '500' }, value: 1 },
      { labels: { path: 'other', status: '404' }, value: 1 },
    ]);
  });
});

describe('the guard', () => {
  const head = (host: string, ...more: string[]) => ['GET /open HTTP/1.1', `host: ${host}`, ...more];

  it.each<[string, number]>([
    ['localhost', 200],
    ['LOCALHOST:80', 200],
    ['127.0.0.1:4878', 200],
    ['127.9.9.9', 200],
    ['[::1]:4878', 200],
    ['evil.com', 403],
    ['evil.com:4878', 403],
    ['localhost.evil.com', 403],
    ['127.0.0.1.evil.com', 403],
    ['127.0.0.1@evil.com', 403],
    ['10.0.0.1', 403],
    ['', 403],
  ])('asked as the host %s on loopback: %i', async (host, status) => {
    const { url } = await serve(echo);
    expect(await rawStatus(url, head(host))).toBe(status);
  });

  it.each([
    ['origin: http://evil.com', 403],
    ['origin: null', 403],
    ['sec-fetch-site: cross-site', 403],
    ['sec-fetch-site: same-site', 403],
    ['sec-fetch-site: none', 200],
    ['sec-fetch-mode: cors', 200],
  ])('with %s, token or not: %i', async (line, status) => {
    for (const given of [null, token]) {
      const { url } = await serve(echo, { token: given });
      expect(await rawStatus(url, head('localhost', line, `authorization: Bearer ${token}`))).toBe(status);
    }
  });

  it('requires the token, except for read-only routes', async () => {
    const { url } = await serve(echo, { token });
    const authorization = `Bearer ${token}`;
    expect((await ask(`${url}/echo`)).status).toBe(401);
    expect((await ask(`${url}/echo`, { headers: { authorization: `${authorization}x` } })).status).toBe(401);
    expect((await ask(`${url}/echo`, { headers: { authorization } })).status).toBe(200);
    expect((await ask(`${url}/open`)).body).toEqual({ trusted: false });
    expect((await ask(`${url}/open`, { headers: { authorization } })).body).toEqual({ trusted: true });
  });

  it.each([
    ['0.0.0.0', null],
    ['10.0.0.1', null],
    ['127.0.0.1.example.org', null],
    ['127.0.0.1', 'short'],
    ['0.0.0.0', 'with spaces in the token'],
  ])('lets no one listen on %s with the token %s', async (host, given) => {
    await expect(serve(echo, { host, token: given })).rejects.toMatchObject({ code: 'config', exitCode: 2 });
  });
});

describe('bodies', () => {
  it('that are too large are answered while they still arrive, to a client that sends before it reads', async () => {
    const { url } = await serve(echo, { limits: { bodyBytes: 1000 } });
    const client = dial(url);
    client.socket.write('POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8000000\r\n\r\n');
    for (let sent = 0; sent < 80; sent++) {
      const full = !client.socket.write(Buffer.alloc(100_000));
      if (full) await new Promise((resolve) => client.socket.once('drain', resolve));
    }
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 413 .*"RequestTooLargeError"/s);
    const fetched = await ask(`${url}/echo`, { method: 'POST', body: new Uint8Array(8_000_000) });
    expect(fetched).toMatchObject({ status: 413, body: { error: { code: 413 } } });
  });

  it('that are too large and come in pieces are too large, and not too many', async () => {
    // A body may have a quarter of what is held: here exactly as much as one may have.
    const { url, server } = await serve(echo, { limits: { heldBytes: 4_000_000, bodyBytes: 1_000_000 } });
    const client = dial(url);
    client.socket.write('POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n');
    const piece = Buffer.concat([Buffer.from('c350\r\n'), Buffer.alloc(50_000), Buffer.from('\r\n')]);
    for (let sent = 0; sent < 40; sent++) client.socket.write(piece);
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 413 .*larger than 1000000 bytes/s);
    expect(server.held.held).toBe(0);
  });

  const upload = (url: string, announced: number, sent: number) => {
    const client = dial(url);
    client.socket.write(`POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${announced}\r\n\r\n`);
    client.socket.write(Buffer.alloc(sent));
    return client;
  };

  it('count while they arrive, and leave room for small ones however many there are', async () => {
    const { url, server } = await serve(echo, { limits: { bodyBytes: 500_000, heldBytes: 4_000_000 } });
    const uploads = Array.from({ length: 30 }, () => upload(url, 500_000, 490_000));
    await until(() => uploads.filter(({ text }) => text().startsWith('HTTP/1.1 429')).length >= 20);
    expect(server.held.held).toBeGreaterThan(1_000_000);
    expect(server.held.held).toBeLessThanOrEqual(4_000_000);
    for (let i = 0; i < 20; i++) {
      expect((await ask(`${url}/echo`, { method: 'POST', body: new Uint8Array(50_000) })).status).toBe(200);
    }
    for (const { socket } of uploads) socket.destroy();
    await until(() => server.held.held === 0);
  });

  it('of tiny pieces count for what the pieces cost', async () => {
    const { url, server } = await serve(echo, { limits: { heldBytes: 300_000, bodyBytes: 100_000 } });
    const client = dial(url);
    client.socket.write('POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n');
    client.socket.write('1\r\nx\r\n'.repeat(10_000));
    // There will never be room for so many pieces: to come again later is no use.
    await until(() => client.text().startsWith('HTTP/1.1 413'));
    await client.closed;
    expect(server.held.held).toBe(0);
  });

  it('that do not come on are rejected, and those that do are not', async () => {
    const { url, server } = await serve(echo, { limits: { bodyBytes: 12e6, heldBytes: 60e6, bodyWindowMs: 800 } });
    const slow = upload(url, 4_000_000, 1_500_000);
    const steady = upload(url, 11_000_000, 0);
    await until(() => {
      steady.socket.write(Buffer.alloc(200_000));
      return steady.text().startsWith('HTTP/1.1');
    });
    expect(steady.text()).toMatch(/^HTTP\/1\.1 200/);
    await until(() => slow.text().startsWith('HTTP/1.1'));
    expect(slow.text()).toMatch(/^HTTP\/1\.1 408 .*arrives too slowly/s);
    slow.socket.destroy();
    steady.socket.destroy();
    await until(() => server.held.held === 0);
  });

  it('are let go when their reply is there, whatever it is', async () => {
    const { url, server } = await serve({
      '/a': {
        POST: async ({ read }) => {
          await read();
          throw new Refusal('bad_request', 'no');
        },
      },
    });
    expect((await ask(`${url}/a`, { method: 'POST', body: 'abc' })).status).toBe(400);
    expect(server.held.held).toBe(0);
  });
});

describe('replies', () => {
  const page = Buffer.alloc(10_000_000, 'x');
  const pages: Readonly<Record<string, Route>> = {
    '/page': { GET: () => ({ status: 200, type: 'text/plain', body: page }) },
    '/echo': echo['/echo'],
  };
  const get = 'GET /page HTTP/1.1\r\nhost: localhost\r\n\r\n';
  const heldBytes = 200e6;

  it('that no one reads count until their clients are gone, and leave room for small ones', async () => {
    const { url, server } = await serve(pages, { limits: { heldBytes } });
    const readers = Array.from({ length: 30 }, () => dial(url, { reads: false }));
    for (const { socket } of readers) socket.write(get);
    await until(() => server.held.held > heldBytes - 30e6);
    expect(server.held.held).toBeLessThanOrEqual(heldBytes);
    const refused = await fetch(`${url}/page`);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1']);
    expect(await refused.text()).toContain('unread replies');
    expect((await ask(`${url}/echo`, { method: 'POST', body: new Uint8Array(50_000) })).status).toBe(200);
    for (const { socket } of readers) socket.destroy();
    await until(() => server.held.held === 0);
    expect((await fetch(`${url}/page`)).status).toBe(200);
  });

  it('that are read count no more, however many go over one connection', async () => {
    const { url, server } = await serve(pages, { limits: { heldBytes } });
    const client = dial(url);
    for (let i = 1; i <= 15; i++) {
      client.socket.write(get);
      await until(() => client.text().length > i * page.length);
    }
    await until(() => server.held.held === 0);
    expect(client.text().match(/HTTP\/1\.1 200/g)).toHaveLength(15);
    client.socket.destroy();
  });

  it('that wait behind another one are let go with their connection', async () => {
    const { url, server } = await serve(pages, { limits: { heldBytes } });
    const client = dial(url, { reads: false });
    client.socket.write(get.repeat(3));
    await until(() => server.held.held >= page.length);
    client.socket.destroy();
    await until(() => server.held.held === 0);
  });

  it('that are larger than all that is set aside are sent if nothing else is held', async () => {
    const { url } = await serve(pages, { limits: { heldBytes: 1e6 } });
    const reply = await fetch(`${url}/page`);
    expect((await reply.arrayBuffer()).byteLength).toBe(page.length);
  });
});

it('advises another port or another host if it cannot listen, by what is wrong', async () => {
  const { url } = await serve(echo);
  const port = Number(new URL(url).port);
  const listen = (host: string, at: number): Promise<unknown> =>
    new HttpServer({ name: 'it', host, token, routes: echo, limits: roomy, onDefect: () => undefined })
      .listen(at)
      .catch((error: unknown) => error);
  const taken = await listen('127.0.0.1', port);
  expect(taken).toBeInstanceOf(EndpointError);
  expect(taken).toMatchObject({ where: `127.0.0.1:${port}`, next: expect.stringMatching(/--port/) as unknown });
  expect(await listen('203.0.113.7', 0)).toMatchObject({ next: expect.stringMatching(/^[^-]*--host/) as unknown });
});

describe('the end', () => {
  it('does not wait for readers that do not read longer than its time', async () => {
    const page = Buffer.alloc(20_000_000, 'x');
    const { url, server } = await serve(
      { '/page': { GET: () => ({ status: 200, type: 'text/plain', body: page }) } },
      { limits: { drainTimeoutMs: 200, heldBytes: 1e9 } },
    );
    const readers = Array.from({ length: 10 }, () => dial(url, { reads: false }));
    for (const { socket } of readers) socket.write('GET /page HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await until(() => server.inFlight === 10);
    await server.drain();
    for (const { socket } of readers) socket.destroy();
    await expect(fetch(`${url}/page`)).rejects.toThrow();
  });

  it('waits for what is in flight, and rejects the rest', async () => {
    let go = (): void => undefined;
    const held = new Promise<void>((resolve) => (go = resolve));
    const { url, server } = await serve({
      '/slow': { GET: () => held.then(() => json(200, {})) },
      '/health': { open: true, GET: (call) => json(200, { draining: call.server.draining }) },
    });
    const slow = ask(`${url}/slow`);
    await until(() => server.inFlight === 1);
    const drained = server.drain();
    const refused = await ask(`${url}/slow`);
    expect(refused).toMatchObject({ status: 503, body: { error: { type: 'ServiceUnavailable' } } });
    expect(refused.headers.get('retry-after')).toBe('5');
    expect((await ask(`${url}/health`)).body).toEqual({ draining: true });
    go();
    expect((await slow).status).toBe(200);
    await drained;
  });
});

describe('requests that come one behind another on one connection', () => {
  it('are all canceled when it breaks, and none is in flight afterwards', async () => {
    let asked = 0;
    let gone = 0;
    const wait: Readonly<Record<string, Route>> = {
      '/wait': {
        GET: (call) => {
          asked++;
          return new Promise((resolve) => {
            call.gone.addEventListener('abort', () => {
              gone++;
              resolve(json(200, {}));
            });
          });
        },
      },
    };
    const { server, url } = await serve(wait);
    const { socket } = dial(url);
    socket.write('GET /wait HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'.repeat(12));
    await until(() => asked === 12);
    expect(server.inFlight).toBe(12);
    socket.destroy();
    await until(() => gone === 12);
    expect(server.inFlight).toBe(0);
    await server.drain();
  });
});

it('a header that cannot be sent costs its own connection, and no one else', async () => {
  const defects: unknown[] = [];
  const routes: Readonly<Record<string, Route>> = {
    ...echo,
    '/broken': { GET: () => json(200, {}, { 'x-note': 'two\nlines' }) },
  };
  const { url, server } = await serve(routes, { onDefect: (error) => defects.push(error) });
  await expect(fetch(`${url}/broken`)).rejects.toThrow();
  expect(defects).toHaveLength(1);
  await until(() => server.held.held === 0);
  expect((await ask(`${url}/open`)).status).toBe(200);
});

describe('connections', () => {
  const head = (path: string, withToken: boolean): string =>
    `GET ${path} HTTP/1.1\r\nhost: localhost\r\n${withToken ? `authorization: Bearer ${token}\r\n` : ''}\r\n`;
  const streaming: Readonly<Record<string, Route>> = {
    ...echo,
    '/stream': {
      GET: ({ response }) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': open\n\n');
        return null;
      },
    },
  };
  const authorization = `Bearer ${token}`;
  /** Clients with their connections, each with these requests sent. */
  async function clients(url: string, count: number, path: string | null, withToken = false): Promise<RawClient[]> {
    const made: RawClient[] = [];
    for (let i = 0; i < count; i++) {
      const client = dial(url);
      await new Promise((resolve) => client.socket.once('connect', resolve));
      if (path !== null) client.socket.write(head(path, withToken));
      made.push(client);
    }
    return made;
  }

  it.each([
    ['silent', null],
    ['kept alive by an open page', '/open'],
    ['refused', '/echo'],
  ])('of strangers, %s, never shut out a client with the token', async (_what, path) => {
    const { url } = await serve(echo, { token, limits: { connections: 16 } });
    const strangers = await clients(url, 140, path);
    expect((await ask(`${url}/echo`, { headers: { authorization } })).status).toBe(200);
    await until(() => strangers.filter(({ socket }) => !socket.closed).length <= 4);
    for (let i = 0; i < 5; i++) {
      expect(await rawStatus(url, ['GET /echo HTTP/1.1', 'host: localhost', `authorization: ${authorization}`])).toBe(
        200,
      );
    }
  });

  it('of strangers end soon, and those of a client with the token stay', async () => {
    const { url } = await serve(echo, { token, limits: { headersTimeoutMs: 200 } });
    const [known] = await clients(url, 1, '/echo', true);
    const strangers = [...(await clients(url, 1, '/open')), ...(await clients(url, 1, null))];
    await Promise.all(strangers.map(({ closed }) => closed));
    known.socket.write(head('/echo', true));
    await until(() => known.text().split('HTTP/1.1 200').length === 3);
  });

  it('that are idle give way to others, the longest idle first', async () => {
    const { url } = await serve(echo, { token, limits: { connections: 16 } });
    const known = await clients(url, 16, '/echo', true);
    await until(() => known.every(({ text }) => text().includes('200 OK')));
    known[0].socket.write(head('/echo', true));
    await until(() => known[0].text().split('HTTP/1.1 200').length === 3);
    const [another] = await clients(url, 1, '/echo', true);
    await known[1].closed;
    await until(() => another.text().includes('200 OK'));
    expect(known.filter(({ socket }) => socket.closed)).toEqual([known[1]]);
  });

  it('over which streams go are limited, the oldest stream ends first', async () => {
    const { url } = await serve(streaming, { token, limits: { connections: 16 } });
    const streams = await clients(url, 1000, '/stream', true);
    await until(() => streams.filter(({ socket }) => !socket.closed).length === 4);
    expect(streams.slice(-4).every(({ socket }) => !socket.closed)).toBe(true);
    expect((await ask(`${url}/echo`, { headers: { authorization } })).status).toBe(200);
  });

  it('are rejected with 429 while requests are in flight over all', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const slow = { '/slow': { GET: () => held.then(() => json(200, {})) } };
    const { url } = await serve({ ...echo, ...slow }, { token, limits: { connections: 16 } });
    const busy = await clients(url, 16, '/slow', true);
    const [late] = await clients(url, 1, '/echo', true);
    await until(() => late.text().includes('429'));
    release();
    await until(() => busy.every(({ text }) => text().includes('200 OK')));
    expect((await ask(`${url}/echo`, { headers: { authorization } })).status).toBe(200);
  });
});
