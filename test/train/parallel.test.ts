/** One run on several ranks, each rank a process group member inside this process. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ImageEditSettings } from '../../src/config/settings.js';
import { InternalError } from '../../src/core/errors.js';
import { Learner, type GradientResult, type LearningGroup } from '../../src/policies/tokens/learner.js';
import { shareOf } from '../../src/policies/tokens/peers.js';
import { latestWhole } from '../../src/run/checkpoints.js';
import { claimRun } from '../../src/run/claim.js';
import { openRunLog } from '../../src/run/logs.js';
import { readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { sessionOptions } from '../../src/tasks/image_edit_tokens.js';
import { nullTracker, RunDirectoryTracker } from '../../src/track/tracker.js';
import type { LoopEnd } from '../../src/train/loop.js';
import type { ProcessGroup } from '../../src/train/process_group.js';
import { JUDGE_MODEL, startJudge, type RunningJudge } from '../../src/tiny/judge/server.js';
import { trainRun } from '../../src/train/worker.js';
import { makeSmallWorld, smallSettings, type SmallWorld } from '../tasks/small_world.js';
import { onRanks } from './groups.js';
import { rewardByName, scored, scorerOf, smallTraining } from './small_training.js';

const root = mkdtempSync(join(tmpdir(), 'parallel-'));
let world: SmallWorld;
let judge: RunningJudge;
beforeAll(async () => {
  world = await makeSmallWorld(root);
  judge = await startJudge({ port: 0, host: '127.0.0.1', models: [JUDGE_MODEL] });
});
afterAll(async () => {
  await judge.close();
  rmSync(root, { recursive: true });
});

const byName = scorerOf((key) => scored(rewardByName(key)));

function norm(values: Iterable<number>): number {
  let sum = 0;
  for (const x of values) sum += x * x;
  return Math.sqrt(sum);
}

/** Without the seconds, which differ between any two runs. */
function untimed(metrics: Metrics): Metrics {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !/^(time|tokens\/s)/.test(name)));
}

function expectClose(found: Metrics, expected: Metrics): void {
  expect(Object.keys(found).sort()).toEqual(Object.keys(expected).sort());
  for (const [name, value] of Object.entries(expected)) expect(found[name], name).toBeCloseTo(value, 5);
}

describe('shares', () => {
  it.each([
    [12, 4],
    [5, 4],
    [3, 4],
    [0, 2],
  ])('of %d things for %d ranks are contiguous, whole and even', (count, size) => {
    const shares = Array.from({ length: size }, (_, rank) => shareOf(count, { rank, size }));
    expect(shares[0].start).toBe(0);
    expect(shares.at(-1)!.end).toBe(count);
    shares.slice(1).forEach(({ start }, i) => expect(start).toBe(shares[i].end));
    for (const { start, end } of shares) expect(Math.abs(end - start - count / size)).toBeLessThan(1);
  });
});

describe('the gradient of one batch', () => {
  async function gradientOn(size: number, count: number): Promise<GradientResult[]> {
    const settings = smallSettings(world);
    const made = smallTraining(settings, byName);
    await made.training.step(1);
    const groups = made.records[0].groups.slice(0, count).map(({ prompt, answers }, i): LearningGroup => ({
      prompt: prompt.tokens,
      answers,
      targets: answers.map(({ ids }, g) => ({
        weights: new Float32Array(ids.length).fill(1 / 200),
        advantage: g - i - 0.7,
        reference: new Float32Array(ids.length).fill(-2),
        oldLogProbs: null,
      })),
    }));
    const results = await onRanks(size, async (group) => {
      const learner = new Learner(made.model, {
        temperature: 1,
        separateVocabularies: true,
        microBatch: 2,
        gradientCheckpointing: false,
        session: sessionOptions(settings.policy.engine),
        peers: group,
      });
      const result = await learner.gradient(groups, { kind: 'grpo', klCoeff: 0.1, clipRange: null, ratio: false });
      await learner.dispose();
      return result;
    });
    await made.training.dispose();
    return results;
  }

  it('agrees to 1e-6 of its norm at 1, 2 and 4 ranks, and is the same on each', async () => {
    const [one] = await gradientOn(1, 3);
    const whole = norm([...one.gradients.values()].flatMap((g) => [...g]));
    expect(whole).toBeGreaterThan(1e-3);
    for (const size of [2, 4]) {
      const ranks = await gradientOn(size, 3);
      for (const { gradients, loss, statistics } of ranks) {
        expect([...gradients.keys()]).toEqual([...one.gradients.keys()]);
        const difference = norm(
          [...one.gradients].flatMap(([name, g]) => [...g].map((x, i) => x - gradients.get(name)![i])),
        );
        expect(difference / whole).toBeLessThan(1e-6);
        expect(loss).toBe(one.loss);
        expect(statistics).toEqual(one.statistics);
        expect(gradients).toEqual(ranks[0].gradients);
      }
    }
  });

  it('needs no micro-batch on every rank', async () => {
    const [one] = await gradientOn(1, 1);
    const ranks = await gradientOn(4, 1);
    // two micro-batches, of which two ranks have one each: the sum of two numbers, in either order
    for (const { gradients } of ranks) expect(gradients).toEqual(one.gradients);
  });
});

/** Statistics of the pictures are the first rank's alone, which records them. */
function withoutStatistics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.startsWith('hack/')));
}

describe('an iteration of GRPO on several ranks', () => {
  interface Found {
    readonly metrics: Metrics;
    readonly heldOut: Metrics;
    readonly episodes: unknown;
    readonly recorded: unknown;
    readonly checksum: string;
    readonly shown: number;
  }
  async function first(group: ProcessGroup): Promise<Found> {
    const settings = smallSettings(world);
    const track = { ...settings.track, log_episodes_every_n_iterations: 1 };
    const made = smallTraining({ ...settings, track }, byName, group);
    const metrics = untimed(await made.training.step(1));
    const heldOut = untimed(await made.training.evaluate(1));
    await made.training.dispose();
    return {
      metrics,
      heldOut,
      episodes: made.records.map(({ groups, advantages }) => [
        groups.map(({ answers }) => answers.map(({ ids }) => ids)),
        advantages,
      ]),
      recorded: made.records.map(({ groups, outcomes }) => [
        groups.map(({ rendered }) => rendered.map(({ parsed, item: { key, edited } }) => ({ parsed, key, edited }))),
        outcomes,
      ]),
      checksum: made.training.checksum(),
      shown: made.shown.flat().length,
    };
  }

  it('has the same episodes, records and numbers at 1, 2 and 4 ranks', async () => {
    const [one] = await onRanks(1, first);
    for (const size of [2, 4]) {
      const [leader, ...followers] = await onRanks(size, first);
      expect(leader.episodes).toEqual(one.episodes);
      expect(leader.recorded).toEqual(one.recorded);
      expect(leader.shown).toBe(4);
      expectClose(leader.metrics, one.metrics);
      expectClose(leader.heldOut, one.heldOut);
      for (const follower of followers) {
        expect(follower.metrics).toEqual(withoutStatistics(leader.metrics));
        expect(follower.heldOut).toEqual(leader.heldOut);
        expect(follower.checksum).toBe(leader.checksum);
        expect([follower.episodes, follower.shown]).toEqual([[], 0]);
      }
    }
  });
});

describe('a run on two ranks', () => {
  const paths = (name: string): RunPaths => new RunPaths(root, name);

  function settingsOf(name: string, changes: Record<string, Record<string, unknown>> = {}): ImageEditSettings {
    const settings = smallSettings(world, {
      validation: { prompts: 4, every_n_iterations: 2 },
      ...changes,
    });
    return { ...settings, run_name: name, base_exp_dir: root, num_iterations: 4 };
  }

  async function attempt(settings: ImageEditSettings, size: number, stopAfter = Infinity): Promise<LoopEnd[]> {
    return onRanks(size, async (group) => {
      const stop = new AbortController();
      const common = {
        group,
        resolveRun: (run: string) => run,
        judgeEndpoint: judge.url,
        stop: stop.signal,
      };
      const logOf = (attempt: number) =>
        openRunLog({ paths: paths(settings.run_name), attempt, rank: group.rank, terminal: null });
      if (group.rank > 0) {
        const log = logOf(1);
        try {
          return await trainRun(settings, { ...common, handle: null, log });
        } finally {
          group.close();
          await log.close();
        }
      }
      const handle = claimRun({
        settings: { run_name: settings.run_name, base_exp_dir: root, num_iterations: 4 },
        compare: () => [],
        resultHash: 'a',
        importHash: 'b',
        command: [],
        versions: {},
      });
      const log = logOf(handle.attempt);
      const records = new RunDirectoryTracker(handle.paths);
      const tracker = {
        ...nullTracker,
        iteration: async (iteration: number, metrics: Metrics) => {
          await records.iteration(iteration, metrics);
          if (iteration === stopAfter) stop.abort();
        },
      };
      try {
        return await trainRun(settings, { ...common, handle, log, tracker });
      } finally {
        group.close();
        await records.finish();
        handle.release();
        await log.close();
      }
    });
  }

  const weights = (name: string): Buffer => readFileSync(join(latestWhole(paths(name))!.dir, 'policy.safetensors'));
  const judged = (name: string): string[] =>
    readFileSync(paths(name).judgements, 'utf8')
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { key: string }).key)
      .sort();

  it('that is stopped and resumed ends in the same bits as one that was not, and judges what one process judges', async () => {
    expect(await attempt(settingsOf('whole'), 2)).toEqual(Array(2).fill({ kind: 'finished', reason: null }));
    expect(await attempt(settingsOf('parts'), 2, 2)).toEqual(Array(2).fill({ kind: 'interrupted' }));
    expect(latestWhole(paths('parts'))?.iteration).toBe(2);
    // Its judgements are there: another iteration 3 would ask for nothing that it already has.
    await attempt(settingsOf('parts'), 2);
    expect(weights('parts').equals(weights('whole'))).toBe(true);
    const numbers = (name: string): unknown =>
      readMetrics(paths(name)).map(({ iteration, metrics }) => [iteration, untimed(metrics)]);
    expect(numbers('parts')).toEqual(numbers('whole'));
    await attempt(settingsOf('single'), 1);
    expect(judged('whole')).toEqual(judged('single'));
    expect(judged('parts')).toEqual(judged('single'));
  });

  it('fails on all where one fails', async () => {
    const ends = onRanks(2, async (group) => {
      if (group.rank === 1) {
        group.close();
        throw new InternalError('a defect');
      }
      return group.barrier();
    });
    await expect(ends).rejects.toThrow(/a defect|rank 1 went away/);
  });

  it('trains supervised and ends early alike', async () => {
    const sft = { type: 'sft', sft: { batch_size: 8, patience: 1, min_delta: 100 } };
    const data = {
      ...world.config.data,
      train: [{ path: (world.config.data['train'] as { path: string }[])[0].path.replace('prompts', 'train') }],
    };
    const changes = { algorithm: sft, data, validation: { prompts: 4, every_n_iterations: 1 } };
    const small = { ...world.config, algorithm: {} };
    world = { config: small };
    for (const size of [1, 2]) {
      const ends = await attempt(settingsOf(`sft_${size}`, changes), size);
      for (const end of ends) expect(end.kind === 'finished' && end.reason).toContain('flat for 1 validations');
    }
    const [one, two] = [1, 2].map((size) => readMetrics(paths(`sft_${size}`)));
    expect(two.map(({ iteration }) => iteration)).toEqual([0, 1, 2]);
    two.forEach(({ metrics }, i) => expectClose(untimed(metrics), untimed(one[i].metrics)));
  });
});
