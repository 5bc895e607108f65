import { describe, expect, it } from 'vitest';
import type { RunReport } from '../../../src/run/report/read.js';
import {
  baselineOf,
  resultRows,
  resultsMarkdown,
  tabulate,
  verdictOf,
  type ResultRun,
} from '../../../src/run/report/results.js';

function report(before: number | null, after: number | null, more: Partial<RunReport['heldout']> = {}): RunReport {
  const heldout = { metric: 'validation/sampled/mean', before, after, iterations: { before: 0, after: 60 }, ...more };
  return { iteration: 60, heldout } as unknown as RunReport;
}

function run(axes: Record<string, string>, after: number | null, outcome = 'finished'): ResultRun {
  const run_name = Object.entries(axes)
    .map(([axis, value]) => `${axis}-${value}`)
    .join('__');
  return { run_name, axes, outcome, report: after === null ? null : report(4, after) };
}

const runs = [
  run({ reward: 'viescore', seed: '1' }, 5),
  run({ reward: 'viescore', seed: '2' }, 7),
  run({ reward: 'viescore', seed: '3' }, 6),
  run({ reward: 'ground', seed: '1' }, 5.5),
  run({ reward: 'ground', seed: '2' }, 7.9),
  run({ reward: 'ground', seed: '3' }, 9, 'failed'),
  run({ reward: 'both', seed: '1' }, null, 'queued'),
];

describe('the result table', () => {
  it('averages over seeds, best first, and pairs seeds against the baseline', () => {
    const results = tabulate('table', runs, { reward: 'viescore', seed: '1' });
    expect(results.metric).toBe('validation/sampled/mean');
    expect(results.baseline).toEqual({ reward: 'viescore' });
    expect(results.cells.map((cell) => cell.axes['reward'])).toEqual(['ground', 'viescore', 'both']);
    const [ground, viescore, both] = results.cells;
    // By hand: 5, 7, 6 have mean 6 and the sample's standard deviation 1.
    expect(viescore.after).toEqual({ mean: 6, std: 1, n: 3 });
    expect(viescore).toMatchObject({ is_baseline: true, difference: null, before: { mean: 4, std: 0, n: 3 } });
    // The failed run counts nowhere. Differences are 0.5 and 0.9: mean 0.7, standard deviation 0.2828, error 0.2.
    expect(ground.after).toMatchObject({ n: 2, mean: expect.closeTo(6.7, 12) as number });
    expect(ground.difference).toEqual({
      mean: expect.closeTo(0.7, 12) as number,
      stderr: expect.closeTo(0.2, 12) as number,
      n: 2,
    });
    expect(both).toMatchObject({ after: null, difference: null });
    expect(both.runs[0]).toMatchObject({ seed: '1', outcome: 'queued', after: null });
  });

  it('compares the winner with the cell that differs from it in what the baseline names alone', () => {
    const cells = [
      run({ kl: '0', lr: 'high' }, 9),
      run({ kl: '1', lr: 'high' }, 6),
      run({ kl: '0', lr: 'low' }, 7),
      // The best among those that have the baseline's kl, at another learning rate than the winner.
      run({ kl: '1', lr: 'low' }, 8),
    ];
    const results = tabulate('table', cells, { kl: '1' });
    const verdict = verdictOf(results);
    expect(verdict).toMatchObject({
      winner: { axes: { kl: '0', lr: 'high' } },
      against: { axes: { kl: '1', lr: 'high' } },
      to_baseline: true,
      difference: { mean: 3, n: 1 },
    });
    expect(verdict?.winner.difference?.mean).toBe(3);
    expect(results.cells.map((cell) => baselineOf(cell, results)?.axes['lr'])).toEqual(['high', 'low', 'low', 'high']);
    const won = verdictOf(tabulate('table', [run({ kl: '1', lr: 'low' }, 9.5), ...cells.slice(0, 3)], { kl: '1' }));
    expect(won).toMatchObject({
      winner: { is_baseline: true },
      against: { axes: { kl: '0', lr: 'high' } },
      to_baseline: false,
    });
    expect(verdictOf(tabulate('table', cells, null))).toMatchObject({
      against: { after: { mean: 8 } },
      to_baseline: false,
    });
  });

  it('is printed with its counts, spreads and differences', () => {
    const { titles, rows } = resultRows(tabulate('table', runs, { reward: 'viescore' }));
    expect(titles).toEqual(['reward', 'runs', 'before', 'after', 'against the baseline']);
    expect(rows).toEqual([
      ['ground', '2 of 3', '4.000 ± 0.000', '6.700 ± 1.697', '+0.700 ± 0.200 (2)'],
      ['viescore', '3', '4.000 ± 0.000', '6.000 ± 1.000', 'baseline'],
      ['both', '0 of 1', '-', '-', '-'],
    ]);
  });

  it('says nothing of spreads and baselines where there are none', () => {
    const { titles, rows } = resultRows(tabulate('table', [run({ kl: '0' }, 5), run({ kl: '1' }, 6)], null));
    expect(titles).toEqual(['kl', 'before', 'after']);
    expect(rows[0]).toEqual(['1', '4.000', '6.000']);
  });

  it('puts the least loss first', () => {
    const losses = ['0.5', '0.3'].map((value) => ({
      ...run({ value }, 1),
      report: report(1, Number(value), { metric: 'validation/loss' }),
    }));
    const results = tabulate('table', losses, null);
    expect(results).toMatchObject({ metric: 'validation/loss', less_is_better: true });
    expect(results.cells.map((cell) => cell.axes['value'])).toEqual(['0.3', '0.5']);
  });

  it('takes the only evaluation of a trainer that evaluates at its end for what came after', () => {
    const single = { ...run({ a: '1' }, 1), report: report(6, null, { iterations: { before: 60, after: null } }) };
    expect(tabulate('table', [single], null).cells[0]).toMatchObject({ before: null, after: { mean: 6 } });
    const untrained = { ...run({ a: '1' }, 1), report: report(6, null, { iterations: { before: 0, after: null } }) };
    expect(tabulate('table', [untrained], null).cells[0]).toMatchObject({ before: { mean: 6 }, after: null });
  });

  it('is a Markdown document', () => {
    const text = resultsMarkdown(tabulate('table', runs, { reward: 'viescore' }));
    expect(text).toContain('# table\n');
    expect(text).toContain('| reward | runs | before | after | against the baseline |\n| --- | ---: |');
    expect(text).toContain('| ground | 2 of 3 | 4.000 ± 0.000 | 6.700 ± 1.697 | +0.700 ± 0.200 (2) |');
  });

  it('of nothing evaluated says so', () => {
    expect(resultsMarkdown(tabulate('table', [run({ a: '1' }, null, 'failed')], null))).toContain('No finished run');
  });
});
