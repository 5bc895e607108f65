import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { evaluatedLines, MOST_EVALUATIONS } from '../../src/web/series.js';
import { testFolders } from '../support/folder.js';

const folder = testFolders('evaluated');

function file(lines: readonly object[], end = ''): string {
  const path = join(folder(), 'metrics.jsonl');
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join('') + end);
  return path;
}
const evaluated = (iteration: number, mean = iteration) => ({ iteration, 'validation/sampled/mean': mean });
const trained = (iteration: number) => ({ iteration, 'reward/mean': 1 });
const iterations = (path: string) => evaluatedLines(path).map(({ iteration }) => iteration);

describe('the first and the last evaluation', () => {
  it('are none where there is no file, no line, or no evaluation', () => {
    expect(evaluatedLines(join(folder(), 'none'))).toEqual([]);
    expect(iterations(file([]))).toEqual([]);
    expect(iterations(file([trained(1), trained(2)]))).toEqual([]);
  });

  it('may be one', () => {
    expect(iterations(file([trained(0), evaluated(1), trained(2)]))).toEqual([1]);
  });

  it('are found from both ends, with those in between', () => {
    expect(evaluatedLines(file([trained(0), evaluated(1), trained(2), evaluated(3, 7), trained(4)]))).toEqual([
      { iteration: 1, metrics: { 'validation/sampled/mean': 1 } },
      { iteration: 3, metrics: { 'validation/sampled/mean': 7 } },
    ]);
    expect(iterations(file([trained(0), evaluated(1), trained(2), evaluated(3), trained(4), evaluated(5)]))).toEqual([
      1, 3, 5,
    ]);
  });

  it('are whole lines: one that is still being written does not count', () => {
    const path = file([evaluated(1), evaluated(2), trained(3)], '{"iteration":4,"validation/sampled/me');
    expect(iterations(path)).toEqual([1, 2]);
    appendFileSync(path, 'an":4}\n');
    expect(iterations(path)).toEqual([1, 2, 4]);
  });
});

describe('evaluations in between', () => {
  it('are thinned evenly where there are many', () => {
    const found = iterations(file(Array.from({ length: 500 }, (_, at) => evaluated(at))));
    expect(found).toHaveLength(MOST_EVALUATIONS);
    expect([found[0], found.at(-1)]).toEqual([0, 499]);
    const gaps = found.slice(2, -1).map((iteration, at) => iteration - found[at + 1]);
    expect(Math.max(...gaps) - Math.min(...gaps)).toBeLessThanOrEqual(1);
  });

  it('come from all over a file that is too long to be read, each once and in order', () => {
    const long = 'x'.repeat(40_000);
    const lines = Array.from({ length: 400 }, (_, at) => (at % 3 === 0 ? { ...evaluated(at), long } : { long }));
    const found = iterations(file(lines));
    expect(found.length).toBeGreaterThan(MOST_EVALUATIONS / 2);
    expect(found.length).toBeLessThanOrEqual(MOST_EVALUATIONS);
    expect([...new Set(found)].sort((a, b) => a - b)).toEqual(found);
    expect([found[0], found.at(-1)]).toEqual([0, 399]);
    expect(Math.max(...found.slice(1).map((iteration, at) => iteration - found[at]))).toBeLessThan(60);
  });

  it('are few where evaluations are far apart', () => {
    const long = 'x'.repeat(900_000);
    expect(iterations(file([evaluated(0), { long }, { long }, evaluated(1), { long }, evaluated(2)]))).toEqual([
      0, 1, 2,
    ]);
  });

  it('are left out where they cannot be read', () => {
    const path = file([evaluated(1)], `{"validation/ is no JSON\n${JSON.stringify(evaluated(3))}\n`);
    expect(iterations(path)).toEqual([1, 3]);
  });
});
