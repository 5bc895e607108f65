import { appendFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RunPaths } from '../../src/run/paths.js';
import { curvesOf } from '../../src/web/curves.js';
import { MetricsSeries, SeriesCache } from '../../src/web/series.js';
import { testFolders } from '../support/folder.js';

const folder = testFolders('series');

function lines(from: number, to: number): string {
  let text = '';
  for (let i = from; i < to; i++) {
    text += `${JSON.stringify({ iteration: i, a: i / 2, ...(i % 3 === 0 ? { b: 9 - i } : {}) })}\n`;
  }
  return text;
}

describe('a series', () => {
  it('reads what is there, then what comes, half lines when they are whole', async () => {
    const path = join(folder(), 'metrics.jsonl');
    const series = new MetricsSeries(path);
    await series.readWhole();
    expect(series.columns.lines).toBe(0);
    writeFileSync(path, lines(0, 5));
    await series.readWhole();
    expect([...series.columns.column('a')]).toEqual([0, 0.5, 1, 1.5, 2]);
    expect([...series.columns.column('b')]).toEqual([9, NaN, NaN, 6]);
    const more = lines(5, 7);
    appendFileSync(path, more.slice(0, 9));
    await series.readWhole();
    expect(series.columns.lines).toBe(5);
    appendFileSync(path, more.slice(9));
    await series.readWhole();
    expect([...series.columns.iterations]).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(series.columns.names).toEqual(['a', 'b']);
  });

  it('begins again where the file was written again, shortened or removed', async () => {
    const path = join(folder(), 'metrics.jsonl');
    writeFileSync(path, lines(0, 20));
    const series = new MetricsSeries(path);
    await series.readWhole();
    writeFileSync(path, lines(0, 3));
    await series.readWhole();
    expect(series.columns.lines).toBe(3);
    rmSync(path);
    writeFileSync(path, lines(10, 30));
    await series.readWhole();
    expect([series.columns.lines, series.columns.iterations[0]]).toEqual([20, 10]);
    rmSync(path);
    await series.readWhole();
    expect(series.columns.lines).toBe(0);
  });

  it('counts lines that are none, and takes numbers that are not finite as what they are', async () => {
    const path = join(folder(), 'metrics.jsonl');
    writeFileSync(
      path,
      '{"iteration":1,"a":"NaN","b":"Infinity","c":"word"}\nnot json\n[1]\nnull\n{"a":1}\n{"iteration":2,"a":4}\n',
    );
    const series = new MetricsSeries(path);
    await series.readWhole();
    expect([series.columns.lines, series.columns.wrong]).toEqual([2, 4]);
    expect([...series.columns.column('a')]).toEqual([NaN, 4]);
    expect([...series.columns.column('b')]).toEqual([Infinity]);
    expect(series.columns.names).toEqual(['a', 'b']);
  });
});

describe('curves', () => {
  const paths = (): RunPaths => new RunPaths(folder(), 'run');
  const all = { metrics: ['a', 'b', 'none'], points: 100, from: 0, to: 1e12 };

  async function write(text: string): Promise<RunPaths> {
    const run = paths();
    writeFileSync(join(run.baseExpDir, 'metrics.jsonl'), text);
    return Object.defineProperty(run, 'metrics', { value: join(run.baseExpDir, 'metrics.jsonl') });
  }

  it('are the lines themselves while these are few', async () => {
    const { curves, metrics, lines: count } = await curvesOf(new SeriesCache(), await write(lines(0, 4)), all);
    expect([metrics, count]).toEqual([['a', 'b'], 4]);
    expect(curves).toEqual([
      { metric: 'a', iterations: [0, 1, 2, 3], mean: [0, 0.5, 1, 1.5] },
      { metric: 'b', iterations: [0, 3], mean: [9, 6] },
      { metric: 'none', iterations: [], mean: [] },
    ]);
  });

  it('keep the extremes of what a point stands for', async () => {
    const text = lines(0, 1000).replace('{"iteration":507,"a":253.5', '{"iteration":507,"a":-9999');
    const [cache, paths] = [new SeriesCache(), await write(text)];
    await cache.get(paths.metrics).readWhole();
    const [curve] = (await curvesOf(cache, paths, { ...all, points: 10 })).curves;
    expect(curve.iterations).toHaveLength(10);
    expect(curve.mean[0]).toBeCloseTo(24.75);
    expect([curve.low?.[5], curve.high?.[5]]).toEqual([-9999, 299.5]);
  });

  it('are of the iterations that are asked for', async () => {
    const { curves } = await curvesOf(new SeriesCache(), await write(lines(0, 1000)), { ...all, from: 10, to: 12 });
    expect(curves[0].iterations).toEqual([10, 11, 12]);
  });

  it('leave the cache when others need the room', async () => {
    const cache = new SeriesCache(2_000);
    const [one, two] = [await write(lines(0, 200)), await write(lines(0, 200))];
    await curvesOf(cache, one, all);
    const before = cache.get(one.metrics);
    await curvesOf(cache, two, all);
    expect(cache.get(one.metrics)).not.toBe(before);
    expect(readFileSync(one.metrics, 'utf8')).toHaveLength(lines(0, 200).length);
  });
});
