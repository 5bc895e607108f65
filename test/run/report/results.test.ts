import { describe, expect, it } from 'vitest';
import { measureTerms } from '../../../src/rewards/score/settings.js';
import type { Estimate } from '../../../src/core/estimate.js';
import { MANNERS, type Manner } from '../../../src/run/metric_names.js';
import type { HeldOut, HeldOutNumber, RunReport } from '../../../src/run/report/read.js';
import {
  baselineOf,
  resultCaption,
  resultRows,
  resultsMarkdown,
  tabulate,
  verdictOf,
  type ResultRun,
} from '../../../src/run/report/results.js';

function number(by: string | null, manner: Manner, before: Estimate | null, after: Estimate): HeldOutNumber {
  return { by, identity: null, manner, set: null, before, after };
}

function report(before: number | null, after: number | null, more: Partial<RunReport['heldout']> = {}): RunReport {
  const iterations = { before: 0, after: 60 };
  const heldout = { metric: 'validation/sampled/mean', before, after, iterations, numbers: [], ...more };
  return { iteration: 60, heldout } as unknown as RunReport;
}

function run(axes: Record<string, string>, after: number | null, outcome = 'finished'): ResultRun {
  const run_name = Object.entries(axes)
    .map(([axis, value]) => `${axis}-${value}`)
    .join('__');
  return { run_name, axes, outcome, report: after === null ? null : report(4, after), settings: null };
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

  it('pairs seeds against the best cell if there is no baseline, as the verdict does', () => {
    const results = tabulate('table', runs, null);
    const [ground, viescore] = results.cells;
    expect(ground.difference).toBeNull();
    expect(viescore.difference).toMatchObject({ mean: expect.closeTo(-0.7, 12) as number, n: 2 });
    expect(verdictOf(results)).toMatchObject({
      to_baseline: false,
      difference: { mean: expect.closeTo(0.7, 12) as number, stderr: expect.closeTo(0.2, 12) as number },
    });
  });

  it('flags a best cell by sampled answers whose greedy ones became worse', () => {
    const greedy = (before: number, after: number, stderr: number | null) => ({
      numbers: [number(null, 'greedy', { mean: before, stderr }, { mean: after, stderr })],
    });
    const best = { ...run({ kl: '0' }, 9), report: report(4, 9, greedy(4, 1, 0.5)) };
    const fell = tabulate('table', [best, run({ kl: '1' }, 5)], null);
    expect(fell.greedy_fell).toEqual(['kl-0']);
    expect(resultCaption(fell)).toContain('warning: the greedy answers of kl-0, in the best cell, are worse');
    for (const fine of [greedy(4, 3.5, 0.5), greedy(4, 1, null), greedy(1, 4, 0.1)]) {
      const other = { ...best, report: report(4, 9, fine) };
      expect(tabulate('table', [other, run({ kl: '1' }, 5)], null).greedy_fell).toEqual([]);
    }
    const second = { ...run({ kl: '1' }, 5), report: report(4, 5, greedy(4, 1, 0.5)) };
    expect(tabulate('table', [run({ kl: '0' }, 9), second], null).greedy_fell).toEqual([]);
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
});

describe('cells that were trained on other rewards', () => {
  const settingsOf = (mode: string, more: Record<string, unknown> = {}): ResultRun['settings'] => {
    const all: Record<string, unknown> = { 'reward.mode': mode, 'reward.terms': [], 'reward.model': 'judge', ...more };
    return (path) => all[path];
  };
  const measures = (name: string, after: number): Pick<HeldOut, 'numbers'> => ({
    numbers: [number(name, 'sampled', { mean: 3, stderr: null }, { mean: after, stderr: null })],
  });
  const cell = (reward: string, mode: string, after: number, measured: number | null, more = {}): ResultRun => ({
    ...run({ reward }, after),
    report: report(4, after, measured === null ? {} : measures('viescore', measured)),
    settings: settingsOf(mode, { 'validation.measure': [{ name: 'viescore' }], ...more }),
  });
  const close = cell('close', 'image_similarity', 0.094, 5);
  const overlap = cell('overlap', 'jpeg_size', 0.021, 6);

  it('have no order, no difference and no winner without a measure, and the reason is reported', () => {
    const results = tabulate('x', [overlap, close], { reward: 'overlap' });
    expect(results.cells.map(({ axes, difference }) => [axes['reward'], difference])).toEqual([
      ['overlap', null],
      ['close', null],
    ]);
    expect(verdictOf(results)).toBeNull();
    const text = resultsMarkdown(results);
    expect(text).toContain('not compared: the cells have different rewards (jpeg_size; image_similarity)');
    expect(text).toContain("set a measure in the experiment file, such as measure: 'jpeg_size'");
    expect(text).toContain('| close | image_similarity | 4.000 | 0.094 |');
    expect(text).not.toContain('against the baseline');
  });

  it('are compared by the measure, whatever their own rewards say', () => {
    const results = tabulate('x', [close, overlap], { reward: 'close' }, measureTerms.parse([{ name: 'viescore' }]));
    expect(verdictOf(results)).toMatchObject({ winner: { axes: { reward: 'overlap' } }, difference: { mean: 1 } });
    expect(resultCaption(results)).toContain(
      'held-out validation/sampled/measure/viescore/mean (measure viescore, 0 to 10)',
    );
    expect(resultRows(results).rows).toEqual([
      ['overlap', '3.000', '6.000', '+1.000 (1)'],
      ['close', '3.000', '5.000', 'baseline'],
    ]);
  });

  it('name the runs that were not measured yet', () => {
    const lacking = cell('close', 'image_similarity', 0.094, null);
    const results = tabulate('x', [lacking, overlap], null, measureTerms.parse([{ name: 'viescore' }]));
    expect(results.unmeasured).toEqual(['reward-close']);
    expect(resultCaption(results)).toContain('editrl rescore reward-close --measure viescore');
  });

  it('are not compared by a measure that asks another judge of each', () => {
    const other = cell('overlap', 'jpeg_size', 0.021, 6, { 'reward.model': 'another' });
    const results = tabulate('x', [close, other], null, measureTerms.parse([{ name: 'viescore' }]));
    expect(results.incomparable).toContain("uses each run's own judge");
    expect(verdictOf(results)).toBeNull();
  });

  it('name a measure with fields as a command takes it', () => {
    const lacking = cell('close', 'image_similarity', 0.094, null);
    const term = { name: 'image_similarity', to: 'truth' };
    const results = tabulate('x', [lacking], null, measureTerms.parse([term]));
    const [, given] = /--measure '([^']*)'/.exec(resultCaption(results)) ?? [];
    expect(measureTerms.parse([JSON.parse(given)])).toEqual(measureTerms.parse([term]));
  });

  it('have no difference by a further measure that asks another judge of each, and the reason is reported', () => {
    const both = measureTerms.parse([{ name: 'jpeg_size' }, { name: 'viescore' }]);
    const measured = (one: ResultRun, value: number): ResultRun => {
      const named = ['jpeg_size', 'viescore'].flatMap((name) => measures(name, value).numbers);
      const recorded = { 'validation.measure': [{ name: 'jpeg_size' }, { name: 'viescore' }] };
      const model = one === close ? 'judge' : 'another';
      return {
        ...one,
        report: report(4, 0, { numbers: named }),
        settings: settingsOf('viescore', { ...recorded, 'reward.model': model }),
      };
    };
    const results = tabulate('x', [measured(close, 5), measured(overlap, 6)], { reward: 'close' }, both);
    expect(results.cells[0]).toMatchObject({
      difference: { mean: 1 },
      also: [{ after: { mean: 6 }, difference: null }],
    });
    expect(resultCaption(results)).toContain("not compared: 'viescore' uses each run's own judge");
  });

  it('are compared by sampled answers where a measure was named on the way', () => {
    const late = [close, overlap].map((one, i): ResultRun => {
      const after = { mean: 5 + i, stderr: null };
      const numbers = MANNERS.map((manner) => number('viescore', manner, null, after));
      return { ...one, report: report(4, 0, { numbers }) };
    });
    const results = tabulate('x', late, null, measureTerms.parse([{ name: 'viescore' }]));
    expect(results.metric).toBe('validation/sampled/measure/viescore/mean');
  });

  it('show every measure, and go by the first', () => {
    const both = measureTerms.parse([{ name: 'viescore' }, { name: 'jpeg_size' }]);
    const { titles } = resultRows(tabulate('x', [close, overlap], null, both));
    expect(titles).toEqual(['reward', 'viescore, before', 'viescore, after', 'jpeg_size, before', 'jpeg_size, after']);
  });

  it('of one seed are paired prompt by prompt', () => {
    const prompts = (scores: readonly number[]): Pick<ResultRun, 'prompts'> => ({
      prompts: () =>
        new Map(
          scores.map((score, i) => [`s/sampled/${i}`, { set: 's', sample: `p${i}`, sampling: 'sampled', score }]),
        ),
    });
    const results = tabulate(
      'x',
      [
        { ...close, ...prompts([1, 2, 3]) },
        { ...overlap, ...prompts([2, 4, 6]) },
      ],
      { reward: 'close' },
      measureTerms.parse([{ name: 'viescore' }]),
    );
    // 1, 2, 3 have mean 2 and the sample's standard deviation 1.
    expect(resultRows(results).rows[0]).toEqual(['overlap', '3.000', '6.000', '+2.000 ± 0.577 (3 prompts)']);
  });
});
