import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CheckpointError, EndpointError } from '../../src/core/errors.js';
import { latestWhole } from '../../src/run/checkpoints.js';
import { claimRun, type RunHandle } from '../../src/run/claim/claim.js';
import { openRunLog, type RunLog } from '../../src/run/logs.js';
import { MetricsJournal, readMetrics, type Metrics } from '../../src/run/metrics.js';
import { RunPaths } from '../../src/run/paths.js';
import { readState } from '../../src/run/state.js';
import { WaitInterrupted } from '../../src/core/group/rank_zero.js';
import { runLoop, type LoopEnd, type LoopOptions, type Training } from '../../src/train/loop.js';

/** Counts, and writes down what it is asked to do. Its state is what a checkpoint of it holds. */
class FakeTraining implements Training {
  readonly events: string[] = [];
  flat = 0;
  /** The judge is away at these events. */
  away: string[] = [];
  hasPartialStep = false;
  /** It is asked to stop while it waits for the judge at this event. */
  stopsAt = '';
  /** After this evaluation it wants to stop. */
  flatFrom = Infinity;

  async step(iteration: number): Promise<Metrics> {
    this.#note(`step ${iteration}`);
    return { 'policy/loss': 10 - iteration, 'time/total': 1 };
  }

  async evaluate(iteration: number, last: boolean): Promise<Metrics> {
    if (iteration >= this.flatFrom) this.flat = 1;
    this.#note(`evaluate ${iteration}${last ? ' last' : ''}`);
    return { 'validation/loss': iteration };
  }

  shouldStop(): string | null {
    return this.flat > 0 ? 'flat' : null;
  }

  async restore(): Promise<void> {}

  async files(iteration: number): Promise<Record<string, string>> {
    this.events.push(`save ${iteration}`);
    return { 'state.json': JSON.stringify({ flat: this.flat }) };
  }

  async checksum(): Promise<string> {
    return `${this.events.filter((event) => event.startsWith('step')).length}`;
  }

  async dispose(): Promise<void> {}

  #note(event: string): void {
    this.events.push(event);
    if (this.stopsAt === event) throw new WaitInterrupted();
    if (this.away.includes(event)) throw new EndpointError('the judge is away');
  }
}

let root: string;
let handle: RunHandle;
let log: RunLog;
const paths = (): RunPaths => new RunPaths(root, 'fake');

function claim(): void {
  handle = claimRun({
    settings: { run_name: 'fake', base_exp_dir: root, num_iterations: 6 },
    compare: () => [],
    resultHash: 'a',
    importHash: 'b',
    command: [],
    versions: {},
  });
  log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal: null });
}

async function close(): Promise<void> {
  handle.release();
  await log.close();
}

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'loop-'));
  claim();
});
afterEach(async () => {
  await close();
  rmSync(root, { recursive: true });
});

async function reclaim(): Promise<void> {
  await close();
  claim();
}

async function go(training: FakeTraining, options: Partial<LoopOptions> = {}): Promise<LoopEnd> {
  class Journal extends MetricsJournal {
    override append(iteration: number, metrics: Metrics): void {
      training.events.push(`track ${iteration}`);
      super.append(iteration, metrics);
    }
    override replace(iteration: number, metrics: Metrics): void {
      training.events.push(`replace ${iteration}`);
      super.replace(iteration, metrics);
    }
  }
  const journal = new Journal(handle.paths);
  try {
    return await runLoop(
      training,
      {
        numIterations: 6,
        evaluateEvery: 2,
        checkpoint: { save_every_n_iterations: 3, keep_every_n_iterations: null, keep_last: 2, keep_best: null },
        columns: [],
        stop: new AbortController().signal,
        ...options,
      },
      { handle, log, journal },
    );
  } finally {
    journal.close();
  }
}

const checkpoints = (): string[] => readdirSync(paths().checkpointsDir).sort();

describe('the training loop', () => {
  it('saves what was asked of a training server, and records it with each iteration', async () => {
    let saved = 0;
    const spending: NonNullable<LoopOptions['spending']> = {
      save: () => void (saved += 1),
      metrics: () => ({ 'spent/sampled_tokens': saved }),
    };
    // The evaluation before training is counted first.
    expect(await go(new FakeTraining(), { spending })).toEqual({ kind: 'finished', reason: null });
    const recorded = readMetrics(paths()).map(({ metrics }) => metrics['spent/sampled_tokens']);
    expect(recorded).toEqual(recorded.map((_, index) => index + 1));
    expect(recorded.length).toBeGreaterThan(1);
  });

  it('evaluates, steps, tracks and saves in this order', async () => {
    const training = new FakeTraining();
    expect(await go(training)).toEqual({ kind: 'finished', reason: null });
    expect(training.events).toEqual([
      ...['evaluate 0', 'track 0', 'save 0'],
      ...['step 1', 'track 1'],
      ...['step 2', 'evaluate 2', 'track 2'],
      ...['step 3', 'track 3', 'save 3'],
      ...['step 4', 'evaluate 4', 'track 4'],
      ...['step 5', 'track 5'],
      ...['step 6', 'evaluate 6 last', 'track 6', 'save 6'],
    ]);
    expect(checkpoints()).toEqual(['000003', '000006']);
    expect(handle.state).toMatchObject({ state: 'finished', iteration: 6, stopped_early: false });
    expect(readMetrics(paths()).map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it('stops early with a last evaluation, a checkpoint and the reason', async () => {
    const training = new FakeTraining();
    training.flatFrom = 4;
    expect(await go(training)).toEqual({ kind: 'finished', reason: 'flat' });
    expect(training.events.slice(-5)).toEqual(['step 4', 'evaluate 4', 'evaluate 4 last', 'track 4', 'save 4']);
    expect(handle.state).toMatchObject({ state: 'finished', iteration: 4, reason: 'flat', stopped_early: true });
  });

  it('saves nothing of an iteration that was cut off after it had changed the weights', async () => {
    const training = new FakeTraining();
    training.stopsAt = 'step 2';
    training.hasPartialStep = true;
    expect(await go(training)).toEqual({ kind: 'interrupted' });
    training.away = ['step 2'];
    training.stopsAt = '';
    await reclaim();
    await expect(go(training)).rejects.toThrow('the judge is away');
    expect(checkpoints()).toEqual(['000000']);
  });

  it('checkpoints the last whole iteration when it is interrupted, and continues after it', async () => {
    const stop = new AbortController();
    const training = new FakeTraining();
    const step = training.step.bind(training);
    training.step = async (iteration) => {
      if (iteration === 4) stop.abort();
      return step(iteration);
    };
    expect(await go(training, { stop: stop.signal })).toEqual({ kind: 'interrupted' });
    expect(training.events.slice(-4)).toEqual(['step 4', 'evaluate 4', 'track 4', 'save 4']);
    expect(handle.state).toMatchObject({ state: 'interrupted', iteration: 4 });
    await reclaim();
    const resumed = new FakeTraining();
    await go(resumed);
    expect(resumed.events[0]).toBe('step 5');
    expect(readMetrics(paths()).map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it.each([
    ['step 5', ['step 5', 'save 4'], ['step 5']],
    // That evaluation is owed.
    ['evaluate 4', ['evaluate 4', 'track 4', 'save 4'], ['evaluate 4', 'replace 4', 'step 5']],
  ])('saves what was learnt before it gives a judge up that is lost at %s', async (away, last, next) => {
    const training = new FakeTraining();
    training.away = [away];
    await expect(go(training)).rejects.toThrow(EndpointError);
    expect(training.events.slice(-last.length)).toEqual(last);
    expect([handle.state.iteration, latestWhole(paths())?.iteration]).toEqual([4, 4]);
    await reclaim();
    const resumed = new FakeTraining();
    await go(resumed);
    expect(resumed.events.slice(0, next.length)).toEqual(next);
  });

  it.each<readonly [string, (training: FakeTraining) => void]>([
    ['before training', (training) => (training.away = ['evaluate 0'])],
    ['in an evaluation', (training) => (training.away = ['evaluate 4'])],
    ['in the last evaluation', (training) => (training.away = ['evaluate 6 last'])],
    ['in a step', (training) => (training.away = ['step 5'])],
    ['in an evaluation, when it was asked to stop', (training) => (training.stopsAt = 'evaluate 4')],
  ])('leaves the metrics of a run that was not cut short, where the judge went away %s', async (_when, cut) => {
    const number = (training: FakeTraining): FakeTraining => {
      // Numbers that are not finite are counted at the end of a line.
      const step = training.step.bind(training);
      training.step = async (iteration) => ({ ...(await step(iteration)), 'policy/kl': iteration === 4 ? NaN : 0 });
      return training;
    };
    await go(number(new FakeTraining()));
    const whole = readFileSync(paths().metrics, 'utf8');
    rmSync(paths().dir, { recursive: true });
    await reclaim();
    const training = number(new FakeTraining());
    cut(training);
    expect(await go(training).catch((error: unknown) => error)).not.toMatchObject({ kind: 'finished' });
    await reclaim();
    expect(await go(number(new FakeTraining()))).toMatchObject({ kind: 'finished' });
    expect(readFileSync(paths().metrics, 'utf8')).toBe(whole);
    expect(whole).toContain('"policy/kl":"NaN"');
  });

  it('does not train on when it was killed between its last checkpoint and its end', async () => {
    const training = new FakeTraining();
    training.flatFrom = 4;
    const setState = handle.setState.bind(handle);
    handle.setState = (change) => {
      if (change.state === 'finished') throw new Error('killed');
      setState(change);
    };
    await expect(go(training)).rejects.toThrow('killed');
    await reclaim();
    const resumed = new FakeTraining();
    resumed.flat = 1; // as the checkpoint says
    expect(await go(resumed)).toEqual({ kind: 'finished', reason: 'flat' });
    expect(resumed.events).toEqual([]);
  });

  /** One whose loss is not finite in these iterations; in those of `idle` no step is taken. */
  function losing(lost: readonly number[], idle: readonly number[] = []): FakeTraining {
    const training = new FakeTraining();
    training.step = async (iteration) => {
      training.events.push(`step ${iteration}`);
      if (idle.includes(iteration)) return { 'group/used': 0 };
      return { 'policy/loss': lost.includes(iteration) ? NaN : 1 };
    };
    return training;
  }

  it('ends a run as failed whose loss was not finite three times running, and names the checkpoint to continue from', async () => {
    const training = losing([2, 4, 6], [3, 5]);
    await expect(
      go(training, {
        checkpoint: { save_every_n_iterations: 1, keep_every_n_iterations: null, keep_last: 6, keep_best: null },
      }),
    ).rejects.toThrow(
      expect.objectContaining({
        code: 'run',
        exitCode: 1,
        message: 'the loss of iterations 2, 4, 6 is not finite (policy/loss is NaN): the run has diverged',
        where: paths().dir,
        next: expect.stringContaining(
          `The last checkpoint with finite weights is at iteration 5 (${paths().checkpoint(5)})`,
        ) as string,
      }),
    );
    // What it measured is recorded; it neither evaluates nor saves any more.
    expect(readMetrics(paths()).at(-1)).toMatchObject({ iteration: 6, metrics: { 'policy/loss': NaN } });
    expect(training.events.slice(-2)).toEqual(['step 6', 'track 6']);
    expect(handle.state.state).not.toBe('finished');
  });

  describe('that keeps the best checkpoint', () => {
    const checkpoint = { save_every_n_iterations: 3, keep_every_n_iterations: null, keep_last: 1, keep_best: 'loss' };
    /** Evaluations find this loss at iterations 0, 2, 4 and 6. */
    function finding(losses: readonly number[]): FakeTraining {
      const training = new FakeTraining();
      const evaluate = training.evaluate.bind(training);
      training.evaluate = async (iteration, last) => {
        await evaluate(iteration, last);
        return { 'validation/loss': losses[iteration / 2] };
      };
      return training;
    }

    it('writes one where an evaluation finds it, and keeps it: of equal ones the earliest', async () => {
      const training = finding([9, 5, 5, 7]);
      await go(training, { checkpoint });
      expect(training.events.filter((event) => event.startsWith('save'))).toEqual([
        'save 0',
        'save 2',
        'save 3',
        'save 6',
      ]);
      expect(checkpoints()).toEqual(['000002', '000006']);
      expect(readState(paths())?.best_checkpoint).toEqual({ iteration: 2, by: 'loss', value: 5 });
    });

    it('lets the one before go when a better one comes, and never counts what is not finite', async () => {
      await go(finding([9, 5, NaN, 1]), { checkpoint });
      expect(checkpoints()).toEqual(['000006']);
    });

    it.each(['step 3', 'step 5', 'evaluate 4'])(
      'keeps the same where it is stopped at %s and goes on',
      async (stopsAt) => {
        const first = finding([9, 5, 6, 7]);
        first.stopsAt = stopsAt;
        expect(await go(first, { checkpoint })).toEqual({ kind: 'interrupted' });
        await reclaim();
        await go(finding([9, 5, 6, 7]), { checkpoint });
        expect(checkpoints()).toEqual(['000002', '000006']);
        expect(readState(paths())?.best_checkpoint).toEqual({ iteration: 2, by: 'loss', value: 5 });
      },
    );
  });

  it('fails rather than save what is not finite, and names the checkpoint to continue from', async () => {
    const training = new FakeTraining();
    const files = training.files.bind(training);
    training.files = (iteration) => {
      if (iteration === 3) throw new CheckpointError('tensor w contains a number that is not finite');
      return files(iteration);
    };
    await expect(go(training)).rejects.toThrow(
      expect.objectContaining({
        code: 'run',
        message: 'iteration 3 is not saved: tensor w contains a number that is not finite',
        next: expect.stringContaining('at iteration 0') as string,
      }),
    );
    expect(checkpoints()).toEqual(['000000']);
  });
});
