import { afterEach, describe, expect, it, vi } from 'vitest';
import { Session } from '../../../src/compute/onnx/session.js';
import { mul } from '../../../src/compute/graph/build.js';
import type { Graph, Value } from '../../../src/compute/graph/ir.js';
import { SessionCache } from '../../../src/compute/onnx/session_cache.js';

const caches: SessionCache[] = [];
afterEach(async () => {
  await Promise.all(caches.splice(0).map((cache) => cache.dispose()));
  vi.restoreAllMocks();
});

/** A cache of graphs that double `n` numbers, with what it compiled and how often it freed a session. */
function doubling(kept?: number) {
  const cache = new SessionCache('doubling', { threads: 1 }, undefined, kept);
  caches.push(cache);
  const freed = vi.spyOn(Session.prototype, 'dispose');
  const compiled: number[] = [];
  const use = <T>(n: number, work: (session: Session) => Promise<T>): Promise<T> => {
    const build = (graph: Graph): Record<string, Value> => {
      compiled.push(n);
      return { y: mul(graph.input('x', [n]), graph.scalar(2)) };
    };
    return cache.use({ n }, build, work);
  };
  const double = (n: number): Promise<unknown> =>
    use(n, async (session) => (await session.run({ x: new Float32Array(n).fill(n) })).y[0]);
  return { use, double, compiled, freed: () => freed.mock.calls.length };
}

describe('compiled sessions', () => {
  it('are kept while they are among those used last, and freed after', async () => {
    const { double, compiled, freed } = doubling(2);
    for (const n of [1, 2, 1, 3]) expect(await double(n)).toBe(2 * n);
    expect(compiled).toEqual([1, 2, 3]);
    expect(freed()).toBe(1);
    // 2 went, for 1 had been used since.
    expect(await double(1)).toBe(2);
    expect(compiled).toEqual([1, 2, 3]);
    expect(await double(2)).toBe(4);
    expect(compiled).toEqual([1, 2, 3, 2]);
    expect(freed()).toBe(2);
  });

  it('stay eight of a kind by default', async () => {
    const { double, freed } = doubling();
    for (let n = 1; n <= 10; n++) await double(n);
    expect(freed()).toBe(2);
  });

  it('are never freed while someone uses them, and shared by those who ask at once', async () => {
    const { use, double, compiled, freed } = doubling(1);
    let release = (): void => {};
    const held = use(1, async (session) => {
      await new Promise<void>((resolve) => (release = resolve));
      return (await session.run({ x: Float32Array.of(21) })).y[0];
    });
    expect(await Promise.all([double(2), double(2), double(3)])).toEqual([4, 4, 6]);
    expect(compiled).toEqual([1, 2, 3]);
    expect(freed()).toBe(2);
    release();
    expect(await held).toBe(42);
    expect(freed()).toBe(2);
    expect(await double(1)).toBe(2);
    expect(compiled).toEqual([1, 2, 3]);
  });

  it('are compiled again after a failure', async () => {
    const { double, compiled } = doubling(2);
    vi.spyOn(Session, 'compile').mockRejectedValueOnce(new Error('refused'));
    await expect(double(1)).rejects.toThrow('refused');
    expect(await double(1)).toBe(2);
    expect(compiled).toEqual([1, 1]);
  });
});
