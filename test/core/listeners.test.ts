import { getMaxListeners } from 'node:events';
import { expect, it } from 'vitest';
import { allowManyListeners } from '../../src/core/clock.js';
import { listening } from '../support/stub_server.js';

it('lets many listen to a signal, which can be given to fetch all the same', async () => {
  const { signal } = new AbortController();
  allowManyListeners(signal);
  expect(getMaxListeners(signal)).toBe(Infinity);
  const server = await listening((_request, response) => response.end('there'));
  expect(await (await fetch(server.url, { signal })).text()).toBe('there');
  await server.close();
});
