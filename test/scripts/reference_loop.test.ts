/** The reference loop and the trainer from the same start come to the same losses and the same weights. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { referenceLoop, type IterationReport } from '../../scripts/reference_loop.js';
import { ConfigError } from '../../src/core/errors.js';
import { RandomStream } from '../../src/core/random.js';
import type { JudgeItem, Outcome } from '../../src/rewards/types.js';
import { ImageEditTask } from '../../src/tasks/image_edit_tokens.js';
import type { Scorer } from '../../src/train/scorer.js';
import type { Metrics } from '../../src/run/metrics.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../tasks/small_world.js';
import { smallTraining } from '../train/small_training.js';

const root = mkdtempSync(join(tmpdir(), 'reference-loop-'));
let world: SmallWorld;
beforeAll(async () => {
  world = await makeSmallWorld(root);
});
afterAll(() => rmSync(root, { recursive: true }));

const noRun = (): string => '/no/run';

/** A judge by the episode's name alone: most are scored, some worth nothing, some without a score. */
const judge = async (items: readonly JudgeItem[]): Promise<Outcome[]> =>
  items.map(({ key }): Outcome => {
    const stream = new RandomStream('judge', key);
    const [, group] = key.split('/');
    const lot = stream.uniform();
    // the last group is left with one score at most, and is dropped
    if (lot < 0.15 || (group === '2' && !key.endsWith('/0'))) {
      return { kind: 'unscored', reason: 'timeout', detail: '', parts: {} };
    }
    if (lot < 0.3) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
    const value = 10 * stream.uniform();
    return { kind: 'scored', value, normalised: value / 10, parts: {} };
  });

async function train(
  settings: ReturnType<typeof smallSettings>,
): Promise<{ metrics: Metrics[]; weights: Map<string, Float32Array> }> {
  const scorer: Scorer = { begin: judge, settle: async (_items, outcomes) => [...outcomes], close: async () => {} };
  const { training, model, alarms } = smallTraining(settings, scorer);
  const metrics = [await training.step(1), await training.step(2)];
  await training.dispose();
  expect(alarms).toEqual([]);
  return { metrics, weights: new Map([...model.weights].map(([name, { data }]) => [name, data])) };
}

describe('the reference loop', () => {
  it.each([
    ['EARL as it is', {}],
    [
      'one vocabulary, a temperature, warm-up',
      {
        policy: { separate_language_and_vision_vocabs: false },
        rollout: { temperature: 0.8 },
        algorithm: { warmup_steps: 3, reward_scale: 0.5 },
      },
    ],
    ['a learning rate that falls', { optimizer: { schedule: 'cosine', decay_steps: 2, min_learning_rate_ratio: 0.2 } }],
  ])('%s: two iterations equal those of the trainer', async (_name, changes) => {
    const settings = smallSettings(world, changes);
    const { metrics, weights } = await train(settings);
    const task = ImageEditTask.open(settings, noRun);
    const reports: IterationReport[] = [];
    const trained = await referenceLoop({ settings, task, judge }, 2, (report) => reports.push(report));
    await task.dispose();
    const relative = (a: number | null, b: number): number => Math.abs((a ?? NaN) - b) / Math.abs(b);
    reports.forEach((report, i) => {
      expect(report.reward).toBeCloseTo(metrics[i]['reward/mean'], 12);
      expect(relative(report.loss, metrics[i]['policy/loss'])).toBeLessThan(1e-6);
      expect(relative(report.gradNorm, metrics[i]['policy/grad_norm'])).toBeLessThan(1e-6);
      expect(Math.abs((report.kl ?? NaN) - metrics[i]['policy/kl'])).toBeLessThan(1e-6);
    });
    expect(reports.map(({ loss }) => loss !== null && loss !== 0)).toEqual([true, true]);
    expect(reports[1].kl).toBeGreaterThan(1e-6);
    for (const [name, data] of weights) {
      trained.get(name)!.data.forEach((w, i) => expect(Math.abs(w - data[i])).toBeLessThan(1e-6));
    }
  });

  it('refuses a config that asks for what it leaves out, by the names of the keys', async () => {
    const settings = smallSettings(world, { algorithm: { clip_range: 0.2, kl_estimator: 'k1' } });
    const task = ImageEditTask.open(settings, noRun);
    await expect(referenceLoop({ settings, task, judge }, 1, () => {})).rejects.toThrow(
      /algorithm.clip_range, algorithm.kl_estimator/,
    );
    await expect(referenceLoop({ settings, task, judge }, 1, () => {})).rejects.toThrow(ConfigError);
    await task.dispose();
  });
});
