/** What every recipe that this program trains promises to those who run it. Each recipe's test runs this on a config of it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RescoreSummary } from '../../../src/train/rescore/rescore_summary.js';
import type { EvaluationReport } from '../../../src/run/report/evaluation.js';
import type { RunReport } from '../../../src/run/report/read.js';
import type { RunStatus } from '../../../src/run/status.js';
import { childrenOf, isRunning, until, type Ended, type Live, type Place } from '../editrl.js';

/** How a judge takes a question: it scores, or says nothing. */
export type Manner = 'scores' | 'silent';

export interface TestJudge {
  /** What APP__REWARD_FUNCTION_API_BASE is for every command. */
  readonly url: string;
  /** Requested at every question. */
  manner: () => Manner;
  close(): Promise<void>;
}

export interface Given {
  /** A place with a command that knows the recipe, and with the runs that its config starts from. */
  readonly makePlace: () => Place;
  /** Six iterations with held-out evaluations at 0, 3 and 6 and checkpoints at the even ones; part of the reward asks the judge. */
  readonly config: string;
  /** Merged over it. */
  readonly overlays: readonly string[];
  readonly startJudge: () => Promise<TestJudge>;
  /** A `reward.mode` that asks nobody. */
  readonly otherReward: string;
  /** Whether its answers are words. */
  readonly answersInWords: boolean;
}

/**
 * How much of the contract a test runs: `run` trains once; `kill` adds status and report, a kill, two processes and rescoring. Kill and resume are
 * proved once per mechanism, not once per recipe.
 */
export type Depth = 'run' | 'kill';
/** `kill` runs all of the contract for every recipe, `run` one short run of each. */
const FORCED = process.env['EDITRL_CONTRACT'];
export const EVERYTHING = FORCED === 'kill';
export const SHORT = FORCED === 'run';

const ITERATIONS = 6;
/** From here on a judge is silent: between two checkpoints. */
const FAILS_AFTER = 3;

/**
 * Trains, kills, resumes and rescores by the command alone, as far as `depth` says. What has to be equal is equal in every bit:
 * the judges answer the same to the same answer.
 */
export function recipeContract(name: string, given: Given, depth: Depth = 'run'): void {
  const isWhole = EVERYTHING || (depth === 'kill' && !SHORT);
  describe(`${name} keeps the contract of recipes`, () => {
    let place: Place;
    let judge: TestJudge;
    /** A run that nothing happened to. */
    let whole: Ended;
    const commands: Live[] = [];

    const overlays = given.overlays.flatMap((file) => ['--with', file]);
    const env = () => ({ APP__REWARD_FUNCTION_API_BASE: judge.url });
    const start = (...args: readonly string[]): Live => {
      const command = place.start(args, env());
      commands.push(command);
      return command;
    };
    const train = (run: string, ...sets: readonly string[]): Live => {
      const all = [`run_name=${run}`, 'reward.max_attempts=1', 'reward.max_wait_s=1', ...sets];
      return start('run', given.config, ...overlays, ...all.flatMap((set) => ['--set', set]));
    };
    const json = async <T>(...args: readonly string[]): Promise<T> => {
      const ended = await start(...args, '--json').ended;
      expect(ended).toMatchObject({ code: 0 });
      return JSON.parse(ended.out) as T;
    };
    const status = async (run: string): Promise<RunStatus> =>
      (await json<{ runs: RunStatus[] }>('status', run)).runs[0];
    /** The digests of a checkpoint's files. */
    const digests = (run: string, iteration: number): unknown =>
      JSON.parse(place.checkpointFile(run, iteration, 'MANIFEST.json').toString());
    const judgeScores = (): void => {
      judge.manner = () => 'scores';
    };

    beforeAll(async () => {
      place = given.makePlace();
      judge = await given.startJudge();
      whole = await train('whole').ended;
    });
    afterEach(judgeScores);
    afterAll(async () => {
      for (const command of commands.filter((one) => one.isAlive())) {
        command.kill('SIGKILL');
        await command.ended;
      }
      await judge.close();
      place.remove();
    });

    it('runs to its end and records every iteration', () => {
      expect(whole).toMatchObject({ code: 0, err: '' });
      const lines = place.metrics('whole');
      expect(lines.map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
      const evaluated = lines.filter((line) => 'validation/sampled/mean' in line);
      expect(evaluated.map(({ iteration }) => iteration)).toEqual([0, 3, 6]);
      // A test of the tests below: it learns something from its first iteration on.
      expect(lines[1]['policy/grad_norm']).toBeGreaterThan(0);
      expect(digests('whole', 6)).not.toEqual(digests('whole', 4));
    });

    it('is evaluated from its last checkpoint to the numbers that it recorded', async () => {
      const { metrics } = await json<EvaluationReport>('evaluate', 'whole');
      const line = Object.entries(place.metrics('whole').at(-1) ?? {});
      expect(metrics).toEqual(Object.fromEntries(line.filter(([name]) => /^(validation|control)\//.test(name))));
    });

    it.runIf(isWhole)('is shown by status and report', async () => {
      expect(await status('whole')).toMatchObject({
        state: 'finished',
        iteration: ITERATIONS,
        num_iterations: ITERATIONS,
        reward: place.metrics('whole').at(-1)?.['reward/mean'],
      });
      const report = await json<RunReport>('report', 'whole');
      expect(report).toMatchObject({
        heldout: { metric: 'validation/sampled/mean', iterations: { before: 0, after: ITERATIONS } },
        training_reward: { iterations: ITERATIONS },
        paths: { curve: expect.any(String) as string, contact_sheet: expect.any(String) as string },
      });
      expect(report.answers.length > 0).toBe(given.answersInWords);
    });

    it.runIf(isWhole)('continues after SIGKILL to the files of a run that no one killed', async () => {
      judge.manner = () => ((place.state('killed')?.iteration ?? 0) < FAILS_AFTER ? 'scores' : 'silent');
      const live = train('killed');
      await until('it waits for the judge', () => !live.isAlive() || place.state('killed')?.iteration === FAILS_AFTER);
      const started = childrenOf(live.pid);
      expect(started.length).toBeGreaterThan(0);
      live.kill('SIGKILL');
      expect(await live.ended).toMatchObject({ signal: 'SIGKILL' });
      await until('everything that it started has ended', () => !started.some(isRunning));
      expect(await status('killed')).toMatchObject({ state: 'dead', iteration: FAILS_AFTER });

      judgeScores();
      const resumed = await start('resume', 'killed').ended;
      expect(resumed).toMatchObject({ code: 0, err: '' });
      expect(resumed.out).toContain('resuming killed from iteration 2 ');
      expect(place.metrics('killed').map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
      expect(digests('killed', ITERATIONS)).toEqual(digests('whole', ITERATIONS));
    });

    it.runIf(isWhole)('makes the same first episodes on two processes', async () => {
      expect(
        await train('two', 'launch.processes=2', 'rollout.chunk_groups=1', 'num_iterations=1').ended,
      ).toMatchObject({ code: 0, err: '' });
      const [one, two] = ['whole', 'two'].map((run) =>
        readFileSync(join(place.run(run), 'episodes/000001.jsonl'), 'utf8'),
      );
      expect(two).toBe(one);
      const started = JSON.parse(readFileSync(join(place.run('two'), 'workers.json'), 'utf8')) as { pids: unknown[] };
      expect(started.pids).toHaveLength(2);
    });

    it.runIf(isWhole)('is scored again from its records, and by another reward', async () => {
      const again = await json<RescoreSummary>('rescore', 'whole', '--offline');
      expect(again).toMatchObject({ not_rescored: {}, differ: 0, judgements: { asked: 0, missing: 0 } });
      expect(again.judgements.replayed).toBeGreaterThan(0);
      const training = again.rows.filter(({ set }) => set === 'training');
      const means = place
        .metrics('whole')
        .slice(1)
        .map((line) => expect.closeTo(Number(line['reward/mean']), 9) as number);
      expect(training.map(({ rescored_mean }) => rescored_mean)).toEqual(means);

      const other = await json<RescoreSummary>('rescore', 'whole', '--reward', given.otherReward);
      expect(other).toMatchObject({
        reward: given.otherReward,
        not_rescored: {},
        judgements: { asked: 0, replayed: 0 },
      });
      expect(other.episodes).toBe(again.episodes);
    });
  });
}
