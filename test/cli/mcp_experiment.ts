/** An experiment of three cells with metrics, episodes and judgements. */
import { writeFileSync } from 'node:fs';
import { writeEpisodes, writeHeldOutEpisodes } from '../../src/run/episodes.js';
import { writeExperiment } from '../../src/run/find.js';
import { encodeLine } from '../../src/run/journal.js';
import type { RunPaths } from '../../src/run/paths.js';
import type { RunFolder } from './run_directory.js';

export const judgement = (key: string, more: object = {}) => ({
  key,
  request_hash: 'r',
  model: 'judge',
  prompt_hash: 'p',
  text: '{"score":[1,2.5]}',
  problem: null,
  scores: [1, 2.5],
  attempts: 1,
  latency_ms: 12.5,
  ...more,
});

/** The run `x__kl-0__seed-1`: a loss that is not finite, judgements in a packed piece and in the current file. */
export function full(folder: RunFolder): RunPaths {
  const paths = folder.make('x__kl-0__seed-1', 'finished');
  seeded(paths, 1);
  const metrics = [
    { iteration: 1, 'policy/loss': 0.5, seed: 7 },
    { iteration: 2, 'policy/loss': NaN, 'validation/sampled/mean': 4, note: 'words' },
    { iteration: 3, 'policy/loss': Infinity },
  ];
  writeFileSync(paths.metrics, metrics.map((line) => `${encodeLine(line).line}\n`).join(''));
  const scored = { kind: 'scored', value: 0.5, normalised: 0.25, parts: { 'words/value': 1 } };
  writeEpisodes(paths, 1, [
    {
      key: '1/0/0',
      sample: 's',
      instruction: 'say',
      finished: true,
      text: 'a',
      tokens: [1, 2],
      grid: { height: 1 },
      outcome: { ...scored, terms: [{ name: 'words', weight: 0.5, normalised: 0.75 }] },
      log_prob: -2,
      advantage: NaN,
    },
    {
      key: '1/0/1',
      sample: 's',
      instruction: 'say',
      finished: false,
      outcome: { kind: 'unscored', reason: 'timeout', detail: 'late', parts: {} },
    },
  ]);
  const measures = { other: { ...scored, value: 3 } };
  writeHeldOutEpisodes(paths, 2, [
    {
      key: 'validation/2/a/b/greedy/0',
      sample: 't',
      instruction: 'say',
      finished: true,
      outcome: { ...scored, measures },
    },
  ]);
  const judgements = [
    judgement('1/0/0/viescore_sc'),
    judgement('validation/2/a/b/greedy/0/viescore_pq', { tokens: { prompt: 812, completion: 40 } }),
  ];
  writeFileSync(paths.judgements, judgements.map((one) => `${JSON.stringify(one)}\n`).join(''));
  return paths;
}

function seeded(paths: RunPaths, seed: number): void {
  const settings = { run_name: paths.runName, base_exp_dir: paths.baseExpDir, num_iterations: 10, seed };
  const record = { format: 1, run_name: paths.runName, hash: 'h', settings, attempts: [] };
  writeFileSync(paths.record, JSON.stringify(record));
}

/** The experiment `x` with the run of `full`, one that has recorded nothing, and one that was never begun. */
export function experiment(folder: RunFolder): RunPaths {
  const paths = full(folder);
  seeded(folder.make('x__kl-1__seed-1', 'running'), 1);
  const cell = (kl: string) => ({
    run_name: `x__kl-${kl}__seed-1`,
    axes: { kl, seed: '1' },
    parents: [],
    differs: {},
    refused: null,
  });
  writeExperiment(folder.dir, {
    experiment: 'x',
    file: '/where/x.jsonnet',
    baseline: null,
    base_axis: null,
    cells: [cell('0'), cell('1'), cell('2')],
    parents: [],
  });
  return paths;
}
