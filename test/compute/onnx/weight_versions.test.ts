import * as ort from 'onnxruntime-node';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { packedSessions, type SessionCache } from '../../../src/compute/onnx/session_cache.js';
import * as g from '../../../src/compute/graph/build.js';
import type { Graph } from '../../../src/compute/graph/ir.js';
import { liveSessions } from './live_sessions.js';

afterEach(() => vi.restoreAllMocks());

const table = { data: Float32Array.of(1, 2, 3) };
const weights = new Map([['table', table]]);

/** Twice the table's sum, as what is lent computes it. */
async function sum(sessions: SessionCache, rows = 1): Promise<number> {
  const build = (graph: Graph) => ({
    y: g.matMul(graph.input('x', [rows, 3]), graph.parameter('table', [3, 1])),
  });
  const x = new Float32Array(3 * rows).fill(2);
  return sessions.use({ rows }, build, async (session) => ((await session.run({ x }, weights)).y as Float32Array)[0]);
}

const packedSums = (): ReturnType<typeof packedSessions> => packedSessions('sums', { threads: 1 });

describe('sessions that hold packed weights', () => {
  it('hold those of one version, packed once for all sizes, until another is used', async () => {
    const create = vi.spyOn(ort.InferenceSession, 'create');
    const packed = packedSums();
    table.data.set([1, 2, 3]);
    expect(await packed.use('a', weights, sum)).toBe(12);
    table.data.set([5, 5, 5]);
    expect(await packed.use('a', weights, (sessions) => sum(sessions, 2))).toBe(12);
    expect(create).toHaveBeenCalledTimes(1);
    expect(await packed.use('b', weights, sum)).toBe(30);
    expect(create).toHaveBeenCalledTimes(2);
    await packed.dispose();
  });

  it('never hold two versions at once, though uses overlap', async () => {
    const live = liveSessions();
    const packed = packedSums();
    const version = (name: string, value: number) =>
      packed.use(name, new Map([['table', { data: new Float32Array(3).fill(value) }]]), async (sessions) => {
        const found = await sum(sessions);
        expect(live.now).toBe(1);
        return [found, await sum(sessions, 2)];
      });
    expect(await Promise.all([version('a', 1), version('b', 2), version('a', 1)])).toEqual([
      [6, 6],
      [12, 12],
      [6, 6],
    ]);
    expect([live.made, live.most, live.now]).toEqual([3, 1, 1]);
    await packed.dispose();
    expect(live.now).toBe(0);
  });

  it('continue after work that failed, and end when it has', async () => {
    const live = liveSessions();
    const packed = packedSums();
    const failing = packed.use('a', weights, async (sessions) => {
      await sum(sessions);
      throw new Error('no more');
    });
    const ended = packed.dispose();
    await expect(failing).rejects.toThrow('no more');
    await ended;
    expect([live.made, live.now]).toEqual([1, 0]);
    table.data.set([1, 1, 1]);
    expect(await packed.use('b', weights, sum)).toBe(6);
    await packed.dispose();
    expect(live.now).toBe(0);
  });
});
