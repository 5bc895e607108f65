import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { RunError } from '../../../src/core/errors.js';
import { listExperiments, readExperiment, writeExperiment } from '../../../src/run/find.js';
import { readExperimentReport } from '../../../src/run/report/experiment.js';
import { must } from '../../../src/core/errors.js';
import { RunFolder } from '../../cli/run_directory.js';

let folder: RunFolder;
beforeEach(() => {
  folder = new RunFolder();
});
afterEach(() => folder.remove());

const cell = (kl: string, seed: string, refused: string | null = null) => ({
  run_name: `x__kl-${kl}__seed-${seed}`,
  axes: { kl, seed },
  parents: ['sft_s'],
  differs: kl === '0' ? { 'algorithm.kl_coeff': 0 } : {},
  refused,
});

const record = {
  experiment: 'x',
  file: '/where/x.jsonnet',
  baseline: { kl: '1' },
  base_axis: null,
  cells: [cell('0', '1'), cell('0', '2'), cell('1', '1'), cell('1', '2')],
  parents: [],
};

function finished(name: string, after: number): string {
  const paths = folder.make(name, 'finished');
  const rows = [
    { iteration: 0, 'validation/sampled/mean': 3 },
    { iteration: 4, 'validation/sampled/mean': after },
  ];
  writeFileSync(paths.metrics, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  return paths.metrics;
}

it('is read back as it was written, and found by name', () => {
  writeExperiment(folder.dir, record);
  expect(readExperiment(folder.dir, 'x')).toEqual({ format: 1, ...record });
  expect(listExperiments([folder.dir, join(folder.dir, 'none')])).toEqual([{ name: 'x', baseExpDir: folder.dir }]);
  expect(readExperiment(folder.dir, 'y')).toBeNull();
});

it('of another version is rejected with its field', () => {
  writeExperiment(folder.dir, record);
  const path = join(folder.dir, 'x.experiment.json');
  const text = readFileSync(path, 'utf8');
  writeFileSync(path, text.replace('"run_name": "x__kl-0__seed-1"', '"run_name": "../../etc"'));
  expect(() => readExperiment(folder.dir, 'x')).toThrow(/cells\.0\.run_name: is not a valid run name/);
  writeFileSync(path, text.slice(0, 100));
  expect(() => readExperiment(folder.dir, 'x')).toThrow(RunError);
});

it('has its table and reports what is wrong with a run', () => {
  finished('x__kl-0__seed-1', 5);
  finished('x__kl-1__seed-1', 4);
  const torn = finished('x__kl-0__seed-2', 6);
  writeFileSync(torn, 'no line\n');
  writeExperiment(folder.dir, { ...record, cells: [...record.cells, cell('2', '1', 'other settings')] });
  finished('x__kl-2__seed-1', 9);
  const { runs, results } = readExperimentReport(folder.dir, must(readExperiment(folder.dir, 'x'), 'x'));
  expect(runs.map(({ outcome }) => outcome)).toEqual(['finished', 'unreadable', 'finished', 'queued', 'failed']);
  expect(runs[1].problem).toContain('metrics.jsonl');
  expect(runs[3]).toMatchObject({ status: null, problem: null, report: null });
  expect(runs[4].problem).toBe('other settings');
  expect(results.cells.map(({ axes, after }) => [axes['kl'], after?.mean ?? null])).toEqual([
    ['0', 5],
    ['1', 4],
    ['2', null],
  ]);
  expect(results.cells[0].difference).toEqual({ mean: 1, stderr: null, n: 1 });
});

it('passes over a line that is being written, and runs that are missing', () => {
  const metrics = finished('x__kl-0__seed-1', 5);
  writeFileSync(metrics, '{"iteration": 5, "rew', { flag: 'a' });
  mkdirSync(join(folder.dir, 'x__kl-1__seed-1'));
  const { runs } = readExperimentReport(folder.dir, { format: 1, ...record });
  expect(runs[0].lines).toHaveLength(2);
  expect(runs.map(({ problem }) => problem)).toEqual([null, null, null, null]);
  rmSync(join(folder.dir, 'x__kl-0__seed-1'), { recursive: true });
  expect(readExperimentReport(folder.dir, { format: 1, ...record }).runs[0].report).toBeNull();
});
