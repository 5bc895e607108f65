import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  freePort,
  MASTER_ADDRESS,
  rankEnvironment,
  workerEnvironment,
} from '../../../src/launch/processes/supervise.js';

afterEach(() => vi.unstubAllEnvs());

describe('the environment of a rank', () => {
  it('is that of this process, what is given, and on top what torchrun would set', () => {
    vi.stubEnv('EDITRL_TEST_OF_ENVIRONMENT', 'own');
    vi.stubEnv('RANK', '17');
    const place = { processes: 2, placement: { devices: [2, 3, 4, 5], threads: 0 }, port: 4242 };
    expect(rankEnvironment(1, place, { A: 'b', WORLD_SIZE: '9' })).toEqual({
      ...process.env,
      A: 'b',
      // CUDA's own order is by speed, nvidia-smi's is not.
      CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
      CUDA_VISIBLE_DEVICES: '4,5',
      RANK: '1',
      LOCAL_RANK: '1',
      GROUP_RANK: '0',
      WORLD_SIZE: '2',
      LOCAL_WORLD_SIZE: '2',
      MASTER_ADDR: '127.0.0.1',
      MASTER_PORT: '4242',
    });
  });

  it('has no GPU if there is none', () => {
    const cpu = { processes: 2, placement: { devices: [], threads: 0 }, port: 1 };
    expect(rankEnvironment(1, cpu, {})).toMatchObject({ CUDA_VISIBLE_DEVICES: '' });
  });

  it('has a number of threads where one is set, unless the user chose another', () => {
    vi.stubEnv('OMP_NUM_THREADS', undefined);
    const place = (threads: number) => ({ processes: 1, placement: { devices: [], threads }, port: 1 });
    expect(rankEnvironment(0, place(0), {})).not.toHaveProperty('OMP_NUM_THREADS');
    expect(rankEnvironment(0, place(1), {})).toMatchObject({ OMP_NUM_THREADS: '1' });
    vi.stubEnv('OMP_NUM_THREADS', '7');
    expect(rankEnvironment(0, place(1), {})).toMatchObject({ OMP_NUM_THREADS: '7' });
  });
});

describe('the environment of a worker', () => {
  const place = { processes: 1, placement: { devices: [], threads: 1 }, port: 1 };

  it('is that of its rank, with two arenas of memory', () => {
    vi.stubEnv('MALLOC_ARENA_MAX', undefined);
    expect(workerEnvironment(0, place, {})).toEqual({ ...rankEnvironment(0, place, {}), MALLOC_ARENA_MAX: '2' });
  });

  it('has as many as the user chose', () => {
    expect(workerEnvironment(0, place, { MALLOC_ARENA_MAX: '3' })).toMatchObject({ MALLOC_ARENA_MAX: '3' });
    vi.stubEnv('MALLOC_ARENA_MAX', '7');
    expect(workerEnvironment(0, place, {})).toMatchObject({ MALLOC_ARENA_MAX: '7' });
  });
});

it('a port that ranks meet at is one that no one listens on', async () => {
  const port = await freePort();
  const server = createServer().listen(port, MASTER_ADDRESS);
  await once(server, 'listening');
  expect(server.address()).toMatchObject({ address: '127.0.0.1', port });
  server.close();
  await once(server, 'close');
});
