/** Requests through the proxies of the environment. */
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { createHttpPool, type HttpPool } from '../../../src/core/http/pool.js';
import { listening } from '../../support/stub_server.js';

const closing: (() => Promise<unknown>)[] = [];
const variables = ['http_proxy', 'HTTP_PROXY', 'https_proxy', 'HTTPS_PROXY', 'no_proxy', 'NO_PROXY'];
beforeEach(() => {
  for (const name of variables) vi.stubEnv(name, '');
});
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const close of closing.splice(0).reverse()) await close();
});

/** A proxy that answers requests for http servers itself, and leads every tunnel to one address. */
async function startProxy(target = 0): Promise<{ readonly url: string; readonly seen: string[] }> {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url} ${request.headers['proxy-authorization'] ?? ''}`.trim());
    request.resume().on('end', () => response.end('from the proxy'));
  });
  server.on('connect', (request, socket) => {
    seen.push(`CONNECT ${request.url}`);
    const tunnel = connect(target, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      tunnel.pipe(socket).pipe(tunnel);
    });
    for (const end of [tunnel, socket]) end.on('error', () => end.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

function pool(): HttpPool {
  const made = createHttpPool({ connections: 2, secret: null });
  closing.push(() => made.close());
  return made;
}

const ask = async (url: string, body?: string): Promise<string> => {
  const reply = await pool().fetch(url, body === undefined ? {} : { method: 'POST', body });
  return reply.text();
};

describe('a pool with HTTP_PROXY', () => {
  it.each(['HTTP_PROXY', 'http_proxy'])('sends requests for http servers to the proxy of %s', async (name) => {
    const proxy = await startProxy();
    vi.stubEnv(name, proxy.url);
    expect(await ask('http://judge.example.invalid/v1/models')).toBe('from the proxy');
    expect(await ask('http://judge.example.invalid:4877/v1/chat/completions', '{}')).toBe('from the proxy');
    expect(proxy.seen).toEqual([
      'GET http://judge.example.invalid/v1/models',
      'POST http://judge.example.invalid:4877/v1/chat/completions',
    ]);
  });

  it('reaches this machine without it', async () => {
    const proxy = await startProxy();
    vi.stubEnv('HTTP_PROXY', proxy.url);
    const server = await listening((_, response) => response.end('directly'));
    closing.push(server.close);
    expect(await ask(server.url)).toBe('directly');
    expect(await ask(server.url.replace('127.0.0.1', 'localhost'))).toBe('directly');
    expect(await ask(server.url.replace('127.0.0.1', '127.0.0.9')).catch(() => 'refused')).not.toBe('from the proxy');
    // A client of another test file may still know a proxy that had this one's port.
    const { port } = new URL(server.url);
    expect(proxy.seen.filter((request) => request.includes(`:${port}`))).toEqual([]);
  });

  it.each(['judge.example.invalid', '.example.invalid', '*', 'other,example.invalid:80'])(
    'leaves out a host of NO_PROXY: %s',
    async (hosts) => {
      const proxy = await startProxy();
      vi.stubEnv('HTTP_PROXY', proxy.url);
      vi.stubEnv('NO_PROXY', hosts);
      await expect(ask('http://judge.example.invalid/')).rejects.toThrow(/ENOTFOUND|EAI_AGAIN/);
      expect(proxy.seen).toEqual([]);
    },
  );

  it("sends the proxy's own name and password", async () => {
    const proxy = await startProxy();
    vi.stubEnv('HTTP_PROXY', proxy.url.replace('//', '//me:secret@'));
    await ask('http://judge.example.invalid/');
    expect(proxy.seen[0]).toContain(`Basic ${Buffer.from('me:secret').toString('base64')}`);
  });

  it('reports a proxy that is missing, and ends with the signal', async () => {
    vi.stubEnv('HTTP_PROXY', 'http://127.0.0.1:9');
    await expect(ask('http://judge.example.invalid/')).rejects.toThrow(/ECONNREFUSED/);
    const silent = await listening(() => undefined);
    closing.push(silent.close);
    vi.stubEnv('HTTP_PROXY', silent.url);
    const started = performance.now();
    const late = pool().fetch('http://judge.example.invalid/', { signal: AbortSignal.timeout(100) });
    await expect(late).rejects.toThrow();
    expect(performance.now() - started).toBeLessThan(5_000);
  });
});

it('tunnels to https servers through HTTPS_PROXY', async () => {
  const plain = await listening((_, response) => response.end('no TLS here'));
  closing.push(plain.close);
  const proxy = await startProxy(plain.port);
  vi.stubEnv('HTTPS_PROXY', proxy.url);
  // What it finds behind the tunnel speaks no TLS.
  await expect(ask('https://judge.example.invalid/v1/models')).rejects.toThrow();
  expect(proxy.seen).toEqual(['CONNECT judge.example.invalid:443']);
});

it('reports a proxy that refuses to tunnel as no abort', async () => {
  const proxy = await listening(() => undefined);
  closing.push(proxy.close);
  proxy.server.on('connect', (_, socket) => socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n'));
  vi.stubEnv('HTTPS_PROXY', proxy.url);
  const refused = ask('https://judge.example.invalid/v1/models');
  await expect(refused).rejects.toMatchObject({ name: 'Error', message: expect.stringContaining('(403)') as string });
});

it.each(['proxy.example:3128', 'not an address', 'ftp://proxy.example'])(
  'rejects %s as the address of a proxy, without quoting it',
  (value) => {
    vi.stubEnv('HTTPS_PROXY', value);
    let found: unknown;
    try {
      createHttpPool({ connections: 1, secret: null });
    } catch (error) {
      found = error;
    }
    expect(found).toBeInstanceOf(ConfigError);
    expect(found).toMatchObject({ where: 'HTTPS_PROXY' });
    expect(String(found)).not.toContain(value);
  },
);
