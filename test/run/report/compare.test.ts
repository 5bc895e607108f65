import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { main } from '../../../src/cli/main.js';
import type { LoadedConfig } from '../../../src/config/load.js';
import { compareRuns, comparisonRows } from '../../../src/run/report/compare.js';
import { comparisonReport } from '../../../src/web/comparison.js';
import { RunPaths } from '../../../src/run/paths.js';
import { capture } from '../../cli/run_directory.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolder } from '../../support/folder.js';
import { finishedRun } from './recorded_runs.js';

let base: string;
let config: LoadedConfig;
beforeEach(async () => {
  base = testFolder('compare');
  config = await loadEvaluated({ file: 'configs/sft_s__rl_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'] });
});
afterEach(() => void vi.restoreAllMocks());

function make(name: string, after: number, change: object = {}): RunPaths {
  const settings = { ...config.settings, run_name: name, base_exp_dir: base, ...change };
  return finishedRun({ ...config, settings }, after, 10);
}

/** The last evaluation: scores by prompt, null for what no judge scored. */
function scores(paths: RunPaths, values: readonly (number | null)[], sample = 'p'): void {
  const line = (value: number | null, at: number): object => ({
    key: `validation/10/s/sampled/${at}`,
    sample: `${sample}${at}`,
    outcome: value === null ? { kind: 'unscored', reason: 'timeout' } : { kind: 'scored', value },
  });
  appendFileSync(paths.heldOutEpisodes(10), values.map((value, at) => `${JSON.stringify(line(value, at))}\n`).join(''));
}

it('pairs prompts that both were scored on', () => {
  const [a, b, c] = [make('a', 4), make('b', 5), make('c', 5)];
  for (const one of [a, b, c]) writeFolder(one);
  scores(a, [1, 2, 3, null]);
  scores(b, [2, 4, 6, 9]);
  scores(c, [2, 4, 6, 9], 'other');
  const comparison = compareRuns([a, b, c]);
  // By hand: 1, 2, 3 have mean 2 and the sample's standard deviation 1.
  expect(comparison.paired).toEqual([
    {
      at: 1,
      run_name: 'b',
      by: null,
      manner: 'sampled',
      mean: 2,
      stderr: expect.closeTo(1 / Math.sqrt(3), 12) as number,
      n: 3,
    },
  ]);
  const rows = comparisonRows(comparison);
  expect(rows.find(({ label }) => label.startsWith('against A'))).toEqual({
    label: 'against A, sampled (3 pairs)',
    values: ['–', '+2.000 ± 0.577', '–'],
  });
  expect(rows.find(({ label }) => label === 'held-out change, sampled')?.values).toEqual([
    '+1.000',
    '+2.000',
    '+2.000',
  ]);
  expect(rows.find(({ label }) => label === 'held-out after, sampled')?.values).toEqual([
    '4.000 ± 0.200',
    '5.000 ± 0.200',
    '5.000 ± 0.200',
  ]);
});

it('distinguishes runs of one name in several folders', async () => {
  const elsewhere = (name: string): RunPaths => new RunPaths(join(base, name), 'same');
  const all = ['one', 'two', 'three'].map((folder, at) =>
    make('same', 4 + at, { base_exp_dir: elsewhere(folder).baseExpDir }),
  );
  for (const one of all) writeFolder(one);
  scores(all[0], [1, 2]);
  scores(all[1], [3, 4]);
  scores(all[2], [6, 7]);
  const comparison = compareRuns(all);
  expect(comparisonRows(comparison).find(({ label }) => label.startsWith('against A'))?.values).toEqual([
    '–',
    '+2.000 ± 0.000',
    '+5.000 ± 0.000',
  ]);
  const { facts } = await comparisonReport(comparison);
  expect(facts.slice(1).map(({ more }) => more)).toEqual([
    expect.stringContaining('+2.000 ± 0.000 against A'),
    expect.stringContaining('+5.000 ± 0.000 against A'),
  ]);
});

it('lists the settings that are not the same, and warns of other rewards', () => {
  const a = make('a', 4);
  const b = make('b', 5, { algorithm: { ...at('algorithm'), kl_coeff: 0.5 } });
  const c = make('c', 5, { reward: { ...at('reward'), mode: 'ground_score' } });
  const { settings, remarks } = compareRuns([a, b, c]);
  expect(
    (settings ?? []).filter(({ effect }) => effect === 'result').map(({ key, values }) => [key, ...values]),
  ).toEqual([
    ['algorithm.kl_coeff', 0.0003, 0.5, 0.0003],
    ['reward.mode', 'viescore', 'viescore', 'ground_score'],
  ]);
  expect(remarks).toEqual([
    expect.stringContaining(
      'the runs have different rewards (viescore; ground_score), so their numbers are on different scales',
    ) as string,
  ]);
  expect(remarks[0]).toContain('editrl rescore RUN --measure viescore');
});

it('compares runs with other rewards by the measure that both have, and by nothing else', () => {
  const validation = { ...at('validation'), measure: [{ name: 'viescore' }] };
  const a = make('a', 4, { validation });
  const b = make('b', 5, { validation, reward: { ...at('reward'), mode: 'jpeg_size' } });
  const measured = { 'validation/sampled/measure/viescore/mean': 6, 'validation/sampled/measure/viescore/stderr': 0.1 };
  for (const one of [a, b]) {
    writeFolder(one);
    appendFileSync(one.metrics, `${JSON.stringify({ iteration: 20, 'validation/sampled/mean': 1, ...measured })}\n`);
  }
  const measures = (value: number): object => ({ viescore: { kind: 'scored', value } });
  const lines = (values: readonly number[]): string =>
    values
      .map((value, i) => ({
        key: `validation/10/s/sampled/${i}`,
        sample: `p${i}`,
        outcome: { kind: 'scored', value: 9 - i, measures: measures(value) },
      }))
      .map((line) => `${JSON.stringify(line)}\n`)
      .join('');
  writeFileSync(a.heldOutEpisodes(10), lines([1, 2, 3]));
  writeFileSync(b.heldOutEpisodes(10), lines([2, 4, 6]));
  const comparison = compareRuns([a, b]);
  expect(comparison.paired).toMatchObject([{ by: 'viescore', manner: 'sampled', mean: 2, n: 3 }]);
  expect(comparison.remarks[0]).toContain('compared by viescore');
  const rows = comparisonRows(comparison).map(({ label, values }) => [label, ...values]);
  expect(rows).toContainEqual(['held-out after, viescore, sampled', '6.000 ± 0.100', '6.000 ± 0.100']);
  expect(rows).toContainEqual(['held-out number', 'viescore, 0 to 10', 'jpeg_size, 0 to 1']);
});

it('reports which settings cannot be read, and compares the rest', () => {
  const [a, b] = [make('a', 4), make('b', 5)];
  const record = { format: 1, run_name: 'a', hash: 'h', settings: { task: 'unknown' }, attempts: [] };
  writeFileSync(a.record, JSON.stringify(record));
  const { remarks, paired, settings } = compareRuns([a, b]);
  expect(remarks).toEqual([expect.stringContaining('the settings of a are left out') as string]);
  expect([paired, settings]).toEqual([[], null]);
  writeFolder(b);
  writeFileSync(b.heldOutEpisodes(10), 'no line\n');
  expect(() => compareRuns([a, b])).toThrow('invalid line');
});

it('is a verb with clear refusals', async () => {
  make('a', 4);
  make('b', 5, { algorithm: { ...at('algorithm'), kl_coeff: 0.5 } });
  const written = capture();
  expect(await main(['compare', 'a', 'b', '--exp-dir', base])).toBe(0);
  expect(written.out).toMatch(/algorithm\.kl_coeff +0\.0003 +0\.5/);
  written.out = '';
  expect(await main(['compare', 'a', 'b', '--exp-dir', base, '--json'])).toBe(0);
  expect(JSON.parse(written.out)).toMatchObject({ runs: [{ run_name: 'a' }, { run_name: 'b' }], paired: [] });
  expect(await main(['compare', 'a', '--exp-dir', base])).toBe(2);
  expect(written.error).toContain('found one run; allowed: two or more different runs');
  expect(await main(['compare', 'a', 'a', '--exp-dir', base])).toBe(2);
  expect(await main(['compare', 'a', 'x', '--exp-dir', base])).toBe(1);
  expect(written.error).toContain("no run named 'x'");
});

function at(section: string): object {
  return (config.settings as unknown as Record<string, object>)[section];
}

function writeFolder(paths: RunPaths): void {
  mkdirSync(paths.episodesDir, { recursive: true });
}
