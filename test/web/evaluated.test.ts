import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { evaluatedLines } from '../../src/web/evaluated.js';
import { testFolders } from '../support/folder.js';

const folder = testFolders('evaluated');

function file(lines: readonly object[], end = ''): string {
  const path = join(folder(), 'metrics.jsonl');
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join('') + end);
  return path;
}
const evaluated = (iteration: number, mean = iteration) => ({ iteration, 'validation/sampled/mean': mean });
const trained = (iteration: number, padding = '') => ({ iteration, 'reward/mean': 1, padding });
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

  it('are found from both ends', () => {
    expect(evaluatedLines(file([trained(0), evaluated(1), evaluated(2), evaluated(3, 7), trained(4)]))).toEqual([
      { iteration: 1, metrics: { 'validation/sampled/mean': 1 } },
      { iteration: 3, metrics: { 'validation/sampled/mean': 7 } },
    ]);
  });

  it.each([1, 20, 300_000])('are found behind much else, wherever chunks begin (lines of %i letters)', (letters) => {
    const many = Array.from({ length: 6 }, (_, i) => trained(10 + i, 'x'.repeat(letters)));
    for (let shift = 0; shift < 12; shift++) {
      const path = file([trained(0, 'y'.repeat(262_100 + shift)), evaluated(1), ...many, evaluated(20), ...many]);
      expect(iterations(path)).toEqual([1, 20]);
    }
  });

  it('are found where their mark lies across two of the chunks that are read from the end', () => {
    const [last, mark] = [JSON.stringify(evaluated(20)), '"validation/'];
    const rest = last.length - last.indexOf(mark) + 1 + JSON.stringify(trained(21)).length + 1;
    for (let cut = 1; cut < mark.length; cut++) {
      const path = file([evaluated(1), evaluated(20), trained(21, 'z'.repeat(256 * 1024 + cut - rest))]);
      expect(iterations(path)).toEqual([1, 20]);
    }
  });

  it('are whole lines: one that is still being written does not count', () => {
    const path = file([evaluated(1), evaluated(2), trained(3)], '{"iteration":4,"validation/sampled/me');
    expect(iterations(path)).toEqual([1, 2]);
    appendFileSync(path, 'an":4}\n');
    expect(iterations(path)).toEqual([1, 4]);
  });
});
