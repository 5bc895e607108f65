import { mkdirSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  bestMeasure,
  bestOf,
  chosenCheckpoint,
  evaluatedValues,
  keptBest,
  parseCheckpointChoice,
  showBest,
} from '../../src/run/chosen_checkpoint.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { MetricsJournal, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { loadEvaluated } from '../config/evaluated.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('best');

/** A run with these evaluations, and a checkpoint at each of `saved`. */
function run(settings: object, evaluations: Readonly<Record<number, Metrics>>, saved: readonly number[]): RunPaths {
  const paths = new RunPaths(newFolder(), 'run');
  mkdirSync(paths.dir, { recursive: true });
  writeFileSync(paths.record, JSON.stringify({ format: 1, run_name: 'run', settings, attempts: [] }));
  const journal = new MetricsJournal(paths);
  for (const [iteration, metrics] of Object.entries(evaluations)) journal.append(Number(iteration), metrics);
  journal.close();
  for (const iteration of saved) saveCheckpoint(paths, iteration, { 'file.txt': 'x' });
  return paths;
}

describe('the best checkpoint', () => {
  it.each([
    ['loss', { 'validation/loss': 2 }, 2],
    ['reward', { 'validation/sampled/mean': 3, 'validation/greedy/mean': 4 }, 3],
    ['reward', { 'validation/greedy/mean': 4 }, 4],
    ['greedy/reward', { 'validation/sampled/mean': 3, 'validation/greedy/mean': 4 }, 4],
    ['ocr', { 'validation/sampled/measure/ocr/mean': 0.5, 'validation/sampled/mean': 3 }, 0.5],
    ['greedy/my/term', { 'validation/greedy/measure/my/term/mean': 0.25 }, 0.25],
    ['reward', { 'validation/sampled/mean': NaN }, null],
    ['ocr', { 'validation/sampled/mean': 1 }, null],
  ])('reads %s from an evaluation', (name, metrics: Metrics, value) => {
    const found = evaluatedValues(bestMeasure(name), [{ iteration: 7, metrics }]);
    expect([...found]).toEqual(value === null ? [] : [[7, value]]);
  });

  it('is the highest reward, the lowest loss, and the earliest of equal ones', () => {
    const values = new Map([
      [0, 1],
      [10, 3],
      [20, 3],
      [30, 2],
    ]);
    const of = (name: string, among: readonly number[]) => bestOf(bestMeasure(name), values, among)?.iteration ?? null;
    expect(of('reward', [30, 20, 10, 0])).toBe(10);
    expect(of('loss', [30, 20, 10, 0])).toBe(0);
    expect(of('loss', [30, 20, 10])).toBe(30);
    expect(of('reward', [5])).toBeNull();
  });

  it('is chosen by name among the checkpoints that exist, with a remark on a better one that was not kept', () => {
    const reward = (value: number): Metrics => ({ 'validation/sampled/mean': value });
    const evaluations = { 0: reward(1), 20: reward(5), 40: reward(3), 60: reward(2) };
    const settings = { checkpoint: { keep_best: 'reward' } };
    const kept = run(settings, evaluations, [0, 20, 60]);
    expect(chosenCheckpoint(kept, 'best')).toEqual({ iteration: 20, dir: kept.checkpoint(20), problems: [] });
    expect(keptBest(kept, settings)).toEqual({ iteration: 20, by: 'reward', value: 5 });
    expect(showBest({ iteration: 20, by: 'reward', value: 5 })).toBe('20, reward 5.000');
    expect(keptBest(kept, {})).toBeNull();

    const old = run({}, evaluations, [0, 40, 60]);
    expect(chosenCheckpoint(old, 'best')).toMatchObject({
      iteration: 40,
      problems: [
        expect.stringContaining('iteration 20 was better by reward (5 against 3 at 40) but has no checkpoint'),
      ],
    });
    expect(chosenCheckpoint(old, 'last').iteration).toBe(60);
    expect(() => chosenCheckpoint(run({}, evaluations, [5]), 'best')).toThrow("was evaluated by 'reward'");
    const measured = { 'validation/sampled/measure/ocr/mean': 1, ...reward(9) };
    expect(chosenCheckpoint(run({}, { 0: measured, 20: reward(10) }, [0, 20]), 'best').iteration).toBe(0);
    const labels = { algorithm: { type: 'sft' } };
    const losses = { 0: { ...reward(1), 'validation/loss': 3 }, 20: { ...reward(2), 'validation/loss': 4 } };
    expect(chosenCheckpoint(run(labels, losses, [0, 20]), 'best').iteration).toBe(0);
    expect(parseCheckpointChoice('best', 'RUN@CHECKPOINT')).toBe('best');
    expect(parseCheckpointChoice('12', 'RUN@CHECKPOINT')).toBe(12);
    expect(() => parseCheckpointChoice('-1', 'RUN@CHECKPOINT')).toThrow('the iteration of a checkpoint');
  });

  it.each([
    ['sft_s__rl_s', 'loss', "found 'loss'; allowed: 'reward', 'greedy/reward' or null"],
    ['sft_s__rl_s', 'ocr', "found 'ocr'; allowed: 'reward'"],
    ['sft_s__rl_s', 'ground_score', null],
    ['sft_s__rl_s', 'sampled/reward', null],
    ['sft_s', 'reward', "found 'reward'; allowed: 'loss' or null"],
    ['sft_s', 'loss', null],
    ['tiny_vq', 'loss', null],
    ['tiny_vq', 'reward', "found 'reward'; allowed: 'loss' or null"],
  ])('is rejected in %s by %s: %s', async (config, name, said) => {
    const measured = name === 'ground_score' ? ['validation.measure=ground_score'] : [];
    const sets = [`checkpoint.keep_best=${name}`, `base_exp_dir=${newFolder()}`, ...measured];
    const overlays = ['configs/lib/tiny.libsonnet'];
    const loading = loadEvaluated({ file: `configs/${config}.jsonnet`, overlays, sets });
    if (said === null) await expect(loading).resolves.toBeDefined();
    else await expect(loading).rejects.toThrow(said);
  });
});
