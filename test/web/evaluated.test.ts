import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { evaluatedLines } from '../../src/web/series.js';
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
  it('are none if there is not a file, no line, or no evaluation', () => {
    expect(evaluatedLines(join(folder(), 'none'))).toEqual([]);
    expect(iterations(file([]))).toEqual([]);
    expect(iterations(file([trained(1), trained(2)]))).toEqual([]);
  });

  it('may be one', () => {
    expect(iterations(file([trained(0), evaluated(1), trained(2)]))).toEqual([1]);
  });

  it('are found from both ends', () => {
    expect(evaluatedLines(file([trained(0), evaluated(1), trained(2), evaluated(3, 7), trained(4)]))).toEqual([
      { iteration: 1, metrics: { 'validation/sampled/mean': 1 } },
      { iteration: 3, metrics: { 'validation/sampled/mean': 7 } },
    ]);
    expect(iterations(file([trained(0), evaluated(1), evaluated(3), trained(4), evaluated(5)]))).toEqual([1, 5]);
  });

  it('are whole lines: one that is still being written does not count', () => {
    const path = file([evaluated(1), evaluated(2), trained(3)], '{"iteration":4,"validation/sampled/me');
    expect(iterations(path)).toEqual([1, 2]);
    appendFileSync(path, 'an":4}\n');
    expect(iterations(path)).toEqual([1, 4]);
  });
});
