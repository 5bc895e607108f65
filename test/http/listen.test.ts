import { createServer } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { EndpointError } from '../../src/core/errors.js';
import { listen } from '../../src/http/listen.js';
import { gatewayOptionsSchema } from '../../src/rewards/gateway/options.js';
import { DEFAULT_PORT } from '../../src/web/server.js';

const servers: ReturnType<typeof createServer>[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

function made(): ReturnType<typeof createServer> {
  const server = createServer();
  servers.push(server);
  return server;
}

async function failure(port: number, host: string): Promise<EndpointError> {
  const error: unknown = await listen(made(), 'the test', port, host).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(EndpointError);
  return error as EndpointError;
}

it('advises another port where the port is taken, which every server has a flag for', async () => {
  const port = await listen(made(), 'the test', 0, '127.0.0.1');
  const error = await failure(port, '127.0.0.1');
  expect(error).toMatchObject({ where: `127.0.0.1:${port}` });
  expect(error.message).toContain('another program uses this port (EADDRINUSE)');
  expect(error.next).toContain('--port');
  expect(error.next).not.toContain('--host');
});

it('advises another host where the address is not of this machine', async () => {
  const error = await failure(0, '203.0.113.7');
  expect(error.message).toContain('EADDRNOTAVAIL');
  expect(error.next).toContain('--host');
  expect(error.next).not.toContain('--port');
});

it('is of distinct ports by default for the dashboard and the gateway', () => {
  expect(gatewayOptionsSchema.parse({ upstreams: ['http://127.0.0.1:9'] }).port).not.toBe(DEFAULT_PORT);
});
