/** What every recipe that this program trains promises to those who run it. Each recipe's test runs this on a config of it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ExperimentPlan } from '../../../src/launch/plan.js';
import type { RescoreSummary } from '../../../src/rescore/rescore_summary.js';
import type { EvaluationReport } from '../../../src/run/report/evaluation.js';
import type { RunReport } from '../../../src/run/report/read.js';
import type { Results } from '../../../src/run/report/results.js';
import type { RunStatus } from '../../../src/run/status.js';
import { childrenOf, isRunning, ROOT, until, type Ended, type Live, type Place } from '../editrl.js';

/** How a judge takes a question: it scores, says that it cannot, or says nothing. */
export type Manner = 'scores' | 'fails' | 'silent';

export interface TestJudge {
  /** What APP__REWARD_FUNCTION_API_BASE is for every command. */
  readonly url: string;
  /** Asked at every question. */
  manner: () => Manner;
  /** Called when a run looks whether it works, and it does not. */
  onLook: () => void;
  close(): Promise<void>;
}

/** Another server that runs ask: of the test, and no process of the run's. */
export interface TestServer {
  /** What every command's environment says of it. */
  readonly env: NodeJS.ProcessEnv;
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
  /** What makes its artifacts, where that is a server; absent where the run itself does. */
  readonly startEnvironment?: () => Promise<TestServer>;
  /** A `reward.mode` that asks nobody. */
  readonly otherReward: string;
  /** Whether its answers are words. */
  readonly answersInWords: boolean;
}

/**
 * How much of the contract a test runs: `run` trains once; `kill` adds status and report, a kill, two processes and rescoring; `whole` adds a
 * judge that fails, and a sweep. Kill and resume are proved once per mechanism (token policy, flow policy, remote images), not once per recipe.
 */
export type Depth = 'run' | 'kill' | 'whole';
const DEPTHS: readonly Depth[] = ['run', 'kill', 'whole'];
/** `run` limits every recipe to one short run, without variants; `whole` runs all of the contract for every recipe and variant. */
const FORCED = process.env['EDITRL_CONTRACT'];
export const EVERYTHING = FORCED === 'whole';
export const SHORT = FORCED === 'run';

const ITERATIONS = 6;
/** From here on a judge fails: between two checkpoints. */
const FAILS_AFTER = 3;
const CELLS = ['rates__rate-high', 'rates__rate-low'];

/**
 * Trains, kills, resumes, rescores, plans and sweeps by the command alone, as far as `depth` says. What has to be equal is equal in every bit:
 * the judges answer the same to the same answer.
 */
export function recipeContract(name: string, given: Given, depth: Depth = 'run'): void {
  const runs = FORCED === 'run' || FORCED === 'whole' ? FORCED : depth;
  /** Defines a test that belongs to this depth or a smaller one. */
  const at = (least: Depth, title: string, test: () => void | Promise<void>): void => {
    if (DEPTHS.indexOf(runs) >= DEPTHS.indexOf(least)) it(title, test);
  };
  describe(`${name} keeps the contract of recipes`, () => {
    let place: Place;
    let judge: TestJudge;
    let environment: TestServer | undefined;
    let experiment: string;
    /** A run that nothing happened to. */
    let whole: Ended;
    const commands: Live[] = [];

    const overlays = given.overlays.flatMap((file) => ['--with', file]);
    const env = () => ({ APP__REWARD_FUNCTION_API_BASE: judge.url, ...environment?.env });
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
    /** It scores until a run has passed an iteration. */
    const thenJudge = (run: string, manner: Manner): void => {
      judge.manner = () => ((place.state(run)?.iteration ?? 0) < FAILS_AFTER ? 'scores' : manner);
    };
    const judgeScores = (): void => {
      judge.manner = () => 'scores';
    };

    beforeAll(async () => {
      place = given.makePlace();
      judge = await given.startJudge();
      environment = await given.startEnvironment?.();
      experiment = join(place.dir, 'rates.jsonnet');
      const rate = (value: number): string => `{ num_iterations: 1, optimizer+: { learning_rate: ${value} } }`;
      const axes = `{ rate: { low: ${rate(1e-4)}, high: ${rate(1e-3)} } }`;
      writeFileSync(experiment, `{ name: 'rates', base: import '${join(ROOT, given.config)}', axes: ${axes} }`);
      whole = await train('whole').ended;
    });
    afterEach(judgeScores);
    afterAll(async () => {
      for (const command of commands.filter((one) => one.isAlive())) {
        command.kill('SIGKILL');
        await command.ended;
      }
      await judge.close();
      await environment?.close();
      place.remove();
    });

    at('run', 'runs to its end and records every iteration', () => {
      expect(whole).toMatchObject({ code: 0, err: '' });
      const lines = place.metrics('whole');
      expect(lines.map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
      const evaluated = lines.filter((line) => 'validation/sampled/mean' in line);
      expect(evaluated.map(({ iteration }) => iteration)).toEqual([0, 3, 6]);
      // A test of the tests below: it learns something from its first iteration on.
      expect(lines[1]['policy/grad_norm']).toBeGreaterThan(0);
      expect(digests('whole', 6)).not.toEqual(digests('whole', 4));
    });

    at('run', 'is evaluated from its last checkpoint to the numbers that it recorded', async () => {
      const { metrics } = await json<EvaluationReport>('evaluate', 'whole');
      const line = Object.entries(place.metrics('whole').at(-1) ?? {});
      expect(metrics).toEqual(Object.fromEntries(line.filter(([name]) => /^(validation|control)\//.test(name))));
    });

    at('kill', 'is shown by status and report', async () => {
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

    at('kill', 'goes on after SIGKILL to the files of a run that nobody killed', async () => {
      thenJudge('killed', 'silent');
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

    at(
      'whole',
      'waits for a judge that fails, ends with a checkpoint and exit code 3, and goes on by the same command',
      async () => {
        const states: unknown[] = [];
        thenJudge('judged', 'fails');
        judge.onLook = () => states.push(place.state('judged')?.state);
        const left = await train('judged').ended;
        expect(left.code).toBe(3);
        expect(left.err).toContain('the judge did not come back within 1 s: ');
        expect(left.err).not.toMatch(/\n {4}at /);
        expect(new Set(states)).toEqual(new Set(['waiting']));
        expect(await status('judged')).toMatchObject({ state: 'interrupted', iteration: FAILS_AFTER });

        judgeScores();
        const resumed = await train('judged').ended;
        expect(resumed).toMatchObject({ code: 0, err: '' });
        expect(resumed.out).toContain(`resuming judged from iteration ${FAILS_AFTER} `);
        expect(digests('judged', ITERATIONS)).toEqual(digests('whole', ITERATIONS));
      },
    );

    at('kill', 'makes the same first episodes on two processes', async () => {
      expect(
        await train('two', 'launch.processes=2', 'rollout.chunk_groups=1', 'num_iterations=1').ended,
      ).toMatchObject({ code: 0, err: '' });
      const [one, two] = ['whole', 'two'].map((run) =>
        readFileSync(join(place.run(run), 'episodes/000001.jsonl'), 'utf8'),
      );
      expect(two).toBe(one);
      const { workers } = JSON.parse(readFileSync(join(place.run('two'), 'workers.json'), 'utf8')) as {
        workers: unknown[];
      };
      expect(workers).toHaveLength(2);
    });

    at('kill', 'is scored again from its records, and by another reward', async () => {
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

    at('whole', 'is planned, and swept to a table', async () => {
      const plan = async () => (await json<ExperimentPlan>('plan', experiment, ...overlays)).cells;
      const before = await plan();
      expect(before.map(({ run_name, state, devices }) => [run_name, state, devices])).toEqual(
        CELLS.map((cell) => [cell, 'new', 1]),
      );
      for (const { memory_bytes } of before) expect(memory_bytes).toBeGreaterThan(0);
      expect(before.map(({ differs }) => differs['optimizer.learning_rate'])).toEqual([1e-3, 1e-4]);

      const { results } = await json<{ results: Results }>('sweep', experiment, ...overlays);
      expect(results.metric).toBe('validation/sampled/mean');
      expect(results.cells.map(({ axes, after }) => [axes['rate'], after?.n]).sort()).toEqual([
        ['high', 1],
        ['low', 1],
      ]);
      expect((await plan()).map(({ state, seconds_left }) => [state, seconds_left])).toEqual(
        CELLS.map(() => ['finished', 0]),
      );
    });
  });
}

/** The contract of another form of a recipe: other models, algorithm or servers. */
export function variantContract(name: string, given: Given, depth: Depth = 'run'): void {
  if (!SHORT) recipeContract(name, given, depth);
}
