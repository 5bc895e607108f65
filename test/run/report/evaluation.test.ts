import { mkdirSync, writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { average, standardError } from '../../../src/core/statistics.js';
import { MetricsJournal } from '../../../src/run/metrics.js';
import { RunPaths } from '../../../src/run/paths.js';
import { evaluationTable, readEvaluation } from '../../../src/run/report/evaluation.js';
import { summarizeOutcomes } from '../../../src/train/scoring/outcomes.js';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { testFolder } from '../../support/folder.js';

const base = testFolder('evaluation-report');

const scored = (value: number, measure: number): Outcome => ({
  kind: 'scored',
  value,
  normalised: value / 10,
  parts: {},
  measures: { 'judge two': { kind: 'scored', value: measure, normalised: measure, parts: {} } },
});
const LOST: Outcome = { kind: 'unscored', reason: 'timeout', detail: 'late', parts: {} };

/** An evaluation with the outcomes of each set's answers. */
function evaluation(
  name: string,
  iteration: number,
  sets: Readonly<Record<string, readonly Outcome[]>>,
  mode = 'viescore',
  measure: readonly object[] = [],
): RunPaths {
  const paths = new RunPaths(base, name);
  mkdirSync(paths.episodesDir, { recursive: true });
  const settings = { run_name: name, base_exp_dir: base, reward: { mode }, validation: { measure } };
  writeFileSync(paths.record, JSON.stringify({ format: 1, run_name: name, settings, attempts: [] }));
  const journal = new MetricsJournal(paths);
  journal.append(iteration, {
    ...Object.fromEntries(
      Object.entries(sets).flatMap(([set, all]) => Object.entries(summarizeOutcomes(`validation/${set}/greedy`, all))),
    ),
    ...summarizeOutcomes('validation/greedy', Object.values(sets).flat()),
    'time/validation': 3,
  });
  journal.close();
  const lines = Object.entries(sets).flatMap(([set, all]) =>
    all.map((outcome, i) =>
      JSON.stringify({ key: `validation/${iteration}/${set}/greedy/${i}`, sample: `${set} ${i}`, outcome }),
    ),
  );
  writeFileSync(paths.heldOutEpisodes(iteration), `${lines.join('\n')}\n`);
  return paths;
}

it('reads means, errors and counts, and compares with another evaluation prompt by prompt', () => {
  const own = {
    paths: evaluation('own', 8, { a: [scored(4, 1), scored(6, 0), LOST], 'b/c': [scored(9, 1)] }),
    iteration: 8,
  };
  const other = {
    paths: evaluation('other', 2, { a: [scored(1, 1), LOST, scored(2, 0)], 'b/c': [scored(4, 0)] }),
    iteration: 2,
  };
  const report = readEvaluation(own, other);
  expect(Object.keys(report.metrics).some((name) => name.startsWith('time/'))).toBe(false);
  expect(report.scale).toEqual({ label: 'viescore', most: 10 });
  const all = [4, 6, 9];
  expect(report.numbers[0]).toEqual({
    by: null,
    manner: 'greedy',
    set: null,
    mean: average(all),
    stderr: standardError(all),
    n: 3,
    unscored: 1,
    // Of the prompts that both scored.
    difference: { mean: (3 + 5) / 2, stderr: 1, n: 2 },
  });
  expect(report.numbers.map(({ by, set, n }) => [by, set, n])).toEqual([
    [null, null, 3],
    [null, 'a', 2],
    [null, 'b/c', 1],
    ['judge two', null, 3],
    ['judge two', 'a', 2],
    ['judge two', 'b/c', 1],
  ]);
  const table = evaluationTable(report, readEvaluation(other), 120);
  expect(table).toMatch(/reward, greedy +6\.333 ± 1\.453 +3 +1 +2\.333 ± 0\.882 +\+4\.000 ± 1\.000 \(2\)\n/);
  expect(table).toMatch(/ measure judge two, b\/c, greedy +1\.000 +1 +0 +0\.000 +\+1\.000 \(1\)$/);
  expect(evaluationTable(readEvaluation(own), null, 120).split('\n')[2]).toMatch(
    /^reward, greedy +6\.333 ± 1\.453 +3 +1$/,
  );
  expect(() => readEvaluation({ ...own, iteration: 7 })).toThrow('no evaluation in this folder');
});

it('compares two that different rewards score by their measures alone', () => {
  const at = (name: string, value: number, measure: number, mode?: string) => ({
    paths: evaluation(name, 1, { a: [scored(value, measure), scored(value, measure)] }, mode),
    iteration: 1,
  });
  const own = at('vie', 4, 1);
  const differencesTo = (other: typeof own): unknown[] =>
    readEvaluation(own, other).numbers.map(({ by, difference }) => [by, difference?.mean]);
  expect(differencesTo(at('ground', 1, 0, 'ground_score'))).toEqual([
    [null, undefined],
    ['judge two', 1],
  ]);
  expect(differencesTo(at('vie_too', 1, 0))[0]).toEqual([null, 3]);
});

it('compares by a measure only where both have it with the same fields', () => {
  const at = (name: string, match: string) => {
    const outcome = scored(4, 1) as Outcome & { kind: 'scored' };
    const { 'judge two': measured } = outcome.measures ?? {};
    const own = { ...outcome, measures: { format_accuracy: measured } };
    const measure = [{ name: 'format_accuracy', match }];
    return { paths: evaluation(name, 1, { a: [own, own] }, 'viescore', measure), iteration: 1 };
  };
  const own = at('iou', 'iou');
  const compared = (other: typeof own): unknown[] =>
    readEvaluation(own, other).numbers.flatMap(({ by, difference }) => (difference === undefined ? [] : [by]));
  expect(compared(at('iou_too', 'iou'))).toEqual([null, 'format_accuracy']);
  expect(compared(at('exact', 'exact'))).toEqual([null]);
});
