import { expect, it } from 'vitest';
import { address, inlinedSource } from '../../../src/web/page/source.js';
import type { WireCurves, WireReport } from '../../../src/web/wire.js';

const report = {
  curves: {
    metrics: ['a', 'b'],
    curves: [
      { metric: 'a', iterations: [1, 2, 3], mean: [4, 5, 6], low: [3, 4, 5], high: [5, 6, 7] },
      { metric: 'b', iterations: [1], mean: [0] },
    ],
    lines: 3,
    wrong_lines: 0,
  },
  images: ['data:image/webp;base64,AA'],
} as unknown as WireReport;
const { signal } = new AbortController();

it('answers for curves as the server does: their names, then those that are asked for, at some iterations', async () => {
  const source = inlinedSource(report);
  const ask = (query: Parameters<typeof address>[1]): Promise<WireCurves> =>
    source.ask(address('/api/curves', query), signal);
  expect(await ask({ run: '' })).toMatchObject({ metrics: ['a', 'b'], curves: [] });
  expect((await ask({ metric: ['a'], from: 2, to: 3 })).curves).toEqual([
    { metric: 'a', iterations: [2, 3], mean: [5, 6], low: [4, 5], high: [6, 7] },
  ]);
  expect((await ask({ metric: ['b', 'a'] })).curves).toHaveLength(2);
});

it('returns inlined images and rejects anything else', async () => {
  const source = inlinedSource(report);
  expect(source.inlined('0')).toBe('data:image/webp;base64,AA');
  expect(source.inlined('1')).toBeNull();
  await expect(source.image('1', signal)).rejects.toThrow('does not contain the image 1');
  await expect(source.ask('/api/runs', signal)).rejects.toThrow('does not contain /api/runs');
});
