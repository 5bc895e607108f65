import { connect as connectSocket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { sha256 } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import {
  openProcessGroup,
  ProcessGroupError,
  soloGroup,
  type ProcessGroup,
} from '../../../src/core/group/process_group.js';
import { freePort } from '../../../src/launch/processes/supervise.js';
import { onRanks, openGroups, rankEnv } from '../../train/groups.js';

function numbers(rank: number, length: number): Float32Array {
  const stream = new RandomStream('numbers', rank);
  return Float32Array.from({ length }, () => stream.normal() * 10 ** stream.integer(6));
}

/** After the turns of the event loop that a stranger takes; every rank waits another while. */
async function late(group: ProcessGroup, order: readonly number[]): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 15 * order[group.rank]));
}

describe('the collectives of a process group', () => {
  it.each([1, 2, 3, 4])('sum in a fixed tree, whoever comes first, with %d ranks', async (size) => {
    const lengths = [70_003, 0, 7];
    const inputs = (rank: number): Float32Array[] => lengths.map((length, i) => numbers(10 * rank + i, length));
    const orders = [
      [0, 1, 2, 3],
      [3, 2, 1, 0],
    ];
    const results = [];
    for (const order of orders) {
      results.push(
        await onRanks(size, async (group) => {
          await late(group, order);
          const arrays = inputs(group.rank);
          await group.sum(arrays);
          return arrays;
        }),
      );
    }
    const [a, b, c, d] = Array.from({ length: size }, (_, rank) => inputs(rank));
    const plus = (x: Float32Array, y: Float32Array | undefined): Float32Array => x.map((v, i) => v + (y?.[i] ?? 0));
    const expected = lengths.map((_, i) =>
      size < 3 ? plus(a[i], b?.[i]) : plus(plus(a[i], b[i]), plus(c[i], d?.[i])),
    );
    const bytes = (arrays: readonly Float32Array[]): string =>
      sha256(Buffer.concat(arrays.map((x) => Buffer.from(x.buffer))));
    for (const ranks of results) expect(ranks.map(bytes)).toEqual(ranks.map(() => bytes(expected)));
  });

  it('sum again and again, with other lengths in between', async () => {
    const found = await onRanks(2, async (group) => {
      const out: number[] = [];
      for (const length of [3, 3, 5, 3]) {
        const array = new Float32Array(length).fill(group.rank + 1);
        await group.sum([array]);
        out.push(array[length - 1]);
      }
      return out;
    });
    expect(found).toEqual([
      [3, 3, 3, 3],
      [3, 3, 3, 3],
    ]);
  });

  it.each([1, 2, 4])('gather and broadcast values that JSON has no words for, with %d ranks', async (size) => {
    const value = (rank: number): unknown => ({
      rank,
      ids: Int32Array.of(rank, 2),
      bytes: new Uint8Array(20).fill(rank),
      long: 'ab'.repeat(200_000),
      nothing: [NaN, -Infinity, null, undefined],
      map: new Map([['a', 1n]]),
    });
    const all = Array.from({ length: size }, (_, rank) => value(rank));
    const found = await onRanks(size, async (group) => {
      await group.barrier();
      return {
        all: await group.allGather(value(group.rank)),
        first: await group.gather(value(group.rank)),
        told: await group.broadcast(group.rank === 0 ? value(9) : undefined),
      };
    });
    found.forEach(({ all: every, first, told }, rank) => {
      expect(every).toEqual(all);
      expect(first).toEqual(rank === 0 ? all : null);
      expect(told).toEqual(value(9));
    });
  });

  it.each([1, 2, 4])('bring each rank what every other has for it alone, with %d ranks', async (size) => {
    const letter = (from: number, to: number): unknown => ({ from, to, x: new Float32Array(from + 2 * to).fill(from) });
    const ranks = Array.from({ length: size }, (_, rank) => rank);
    const found = await onRanks(size, async (group) => [
      await group.allToAll(ranks.map((to) => letter(group.rank, to))),
      await group.allToAll(ranks.map((to) => (to === group.rank ? [] : undefined))),
    ]);
    found.forEach(([letters, next], rank) => {
      expect(letters).toEqual(ranks.map((from) => letter(from, rank)));
      expect(next).toEqual(ranks.map((from) => (from === rank ? [] : undefined)));
    });
  });

  it('are nothing where the group is one process', async () => {
    const group = soloGroup();
    const array = Float32Array.of(1, 2);
    await group.sum([array]);
    expect(array).toEqual(Float32Array.of(1, 2));
    expect(await group.allGather('x')).toEqual(['x']);
    expect((await openProcessGroup({ RANK: '0', WORLD_SIZE: '1' })).size).toBe(1);
  });

  it('fail on every rank where one goes away, and name it', async () => {
    const groups = await openGroups(3);
    const [a, b, c] = groups;
    const waiting = [a.allGather(0), b.allGather(1)].map((promise) => promise.catch((error: unknown) => error));
    c.close();
    const [atHub, atSpoke] = (await Promise.all(waiting)) as Error[];
    for (const error of [atHub, atSpoke]) {
      expect(error).toBeInstanceOf(ProcessGroupError);
      expect(error.message).toContain('rank 2 went away');
    }
    // and stay failed
    await expect(a.barrier()).rejects.toThrow(ProcessGroupError);
    await expect(c.barrier()).rejects.toThrow('left its process group');
  });

  it('fail where rank 0 goes away, in a sum as well', async () => {
    const [a, b] = await openGroups(2);
    const waiting = b.sum([new Float32Array(1 << 20)]).catch((error: unknown) => error);
    a.close();
    expect(String(await waiting)).toContain('rank 0 went away');
  });

  it('notice ranks that do different things', async () => {
    const [a, b] = await openGroups(2);
    const results = await Promise.allSettled([a.sum([new Float32Array(2)]), b.allGather(1)]);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(String((results[0] as PromiseRejectedResult).reason)).toContain(
      'expected arrays 1 of rank 1, found value 1',
    );
    const [c, d] = await openGroups(2);
    const lengths = await Promise.allSettled([c.sum([new Float32Array(2)]), d.sum([new Float32Array(3)])]);
    expect(String((lengths[0] as PromiseRejectedResult).reason)).toContain('rank 1 sent 12 bytes, expected were 8');
  });

  it('are taken one at a time', async () => {
    const [a, b] = await openGroups(2);
    const first = a.barrier();
    await expect(a.barrier()).rejects.toThrow('allGather began while allGather was in progress');
    await b.barrier();
    await first;
    a.close();
    b.close();
  });
});

describe('meeting', () => {
  it('names the ranks that did not come, everywhere', async () => {
    const port = await freePort();
    const ranks = [0, 2].map((rank) =>
      openProcessGroup(rankEnv(rank, 4, port), { timeoutMs: 300 }).catch((error: unknown) => error),
    );
    for (const error of await Promise.all(ranks)) {
      expect(error).toBeInstanceOf(ProcessGroupError);
      expect((error as Error).message).toContain('ranks 1, 3 of 4 did not connect within 0.3 s');
    }
  });

  it('reports that rank 0 is missing', async () => {
    const alone = openProcessGroup(rankEnv(1, 2, await freePort()), { timeoutMs: 100 });
    await expect(alone).rejects.toThrow('rank 0 did not listen within 0.1 s');
  });

  it('lets no one in who does not belong to the run', async () => {
    const port = await freePort();
    const first = openProcessGroup(rankEnv(0, 2, port));
    await expect(openProcessGroup(rankEnv(1, 2, port, 'another'))).rejects.toThrow('EDITRL_GROUP_TOKEN differs');
    await expect(openProcessGroup(rankEnv(1, 3, port))).rejects.toThrow('WORLD_SIZE is 3, rank 0 has 2');
    const stranger = connectSocket(port, '127.0.0.1', () => stranger.write('GET / HTTP/1.1\r\n\r\n'));
    stranger.on('error', () => undefined);
    const silent = connectSocket(port, '127.0.0.1');
    silent.on('error', () => undefined);
    const second = await openProcessGroup(rankEnv(1, 2, port));
    const group = await first;
    expect(await Promise.all([group.allGather('a'), second.allGather('b')])).toEqual([
      ['a', 'b'],
      ['a', 'b'],
    ]);
    for (const one of [group, second]) one.close();
    for (const one of [stranger, silent]) one.destroy();
  });

  it('reports what is wrong with the environment, and that a group is local to one machine', async () => {
    const good = rankEnv(0, 2, 1);
    await expect(openProcessGroup({ ...good, RANK: undefined })).rejects.toThrow('RANK is not set');
    await expect(openProcessGroup({ ...good, RANK: '2' })).rejects.toThrow('ranks count from 0');
    const remote = await openProcessGroup({ ...good, MASTER_ADDR: '10.0.0.7' }).catch((error: unknown) => error);
    expect((remote as ProcessGroupError).toText()).toMatch(/10\.0\.0\.7.*local to one machine[^]*slurm/);
  });

  it('reports that a port is taken', async () => {
    const port = await freePort();
    const first = openProcessGroup(rankEnv(0, 2, port), { timeoutMs: 400 }).catch(() => undefined);
    await expect(openProcessGroup(rankEnv(0, 2, port))).rejects.toThrow('rank 0 cannot listen');
    await first;
  });
});
