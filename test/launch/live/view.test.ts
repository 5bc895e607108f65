import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RunInProgress, type LiveProgress } from '../../../src/launch/live/watch.js';
import { runLine } from '../../../src/launch/live/screen.js';
import { LiveView, openView, PlainView } from '../../../src/launch/live/view.js';
import { SweepReporter } from '../../../src/launch/sweep/reporter.js';
import { Schedule } from '../../../src/launch/sweep/schedule.js';
import { encodeLine } from '../../../src/run/journal.js';
import { MetricsTail } from '../../../src/run/metrics.js';
import { Progress } from '../../../src/run/progress.js';
import { RunPaths } from '../../../src/run/paths.js';
import { testFolder } from '../../support/folder.js';
import { TestTerminal } from '../../support/terminal.js';
import { fakeConfig, fakeJob } from '../sweep/fakes.js';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] }));
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

/** A run at work whose folder the test writes. */
class WatchedRun {
  readonly run: RunInProgress;
  readonly paths: RunPaths;

  /** `reached`: the iteration that earlier attempts came to. */
  constructor(name: string, base = testFolder('live'), reached: number | null = null) {
    const config = fakeConfig(name);
    const paths = new RunPaths(base, name);
    this.paths = paths;
    mkdirSync(paths.dir, { recursive: true });
    if (reached !== null) {
      writeFileSync(paths.state, JSON.stringify({ state: 'interrupted', iteration: reached, num_iterations: 100 }));
    }
    this.run = new RunInProgress({ settings: { ...config.settings, base_exp_dir: base } }, 'CPU, 1 thread');
  }

  measure(iteration: number, metrics: Record<string, number>): void {
    appendFileSync(this.paths.metrics, `${encodeLine({ iteration, ...metrics }).line}\n`);
  }

  state(state: string, iteration: number, reason: string | null = null): void {
    writeFileSync(this.paths.state, JSON.stringify({ state, iteration, num_iterations: 100, reason }));
  }

  get progress(): LiveProgress {
    return {
      title: this.run.name,
      opening: null,
      names: (phase) => (phase === 'running' ? [this.run.name] : []),
      running: new Map([[this.run.name, this.run]]),
    };
  }
}

describe('without a terminal', () => {
  it('prints the evaluations of a run that ends between two readings', () => {
    const one = new WatchedRun('mine');
    let out = '';
    const view = new PlainView((text) => (out += text));
    view.begin(one.progress);
    for (const [iteration, mean] of [3, 3.5, 4].entries()) {
      one.measure(iteration, { 'validation/sampled/mean': mean, 'validation/greedy/mean': mean });
    }
    view.finished('mine', 2);
    view.end();
    const lines = out.trimEnd().split('\n');
    expect(lines).toEqual([
      'mine  held-out at 0: 3.00, greedy 3.00',
      'mine  held-out at 1: 3.50, greedy 3.50',
      'mine  held-out at 2: 4.00, greedy 4.00',
      'finished mine in 2 s, held-out 3.00 -> 4.00',
    ]);
  });

  it('says evaluations when they come, and where a run stands every 30 s, ever more rarely', () => {
    const one = new WatchedRun('mine');
    let out = '';
    const view = new PlainView((text) => (out += text));
    view.begin(one.progress);
    vi.advanceTimersByTime(1000);
    one.measure(0, { 'validation/sampled/mean': 3.18, 'validation/sampled/stderr': 0.23, 'validation/greedy/mean': 3 });
    vi.advanceTimersByTime(2000);
    expect(out).toBe('mine  held-out at 0: 3.18 ± 0.23, greedy 3.00\n');
    for (let i = 1; i <= 50; i++) one.measure(i, { 'reward/mean': i / 10 });
    vi.advanceTimersByTime(29_000);
    expect(out.split('\n')[1]).toMatch(
      /^mine {2}50\/100 {2}reward 5\.00 {2}held-out 3\.18 ± 0\.23 {2}\d+ s left {2}CPU/,
    );
    const before = out.split('\n').length;
    vi.advanceTimersByTime(600_000);
    expect(out.split('\n').length - before).toBe(20);
    vi.advanceTimersByTime(1200_000);
    const late = out.split('\n').length;
    vi.advanceTimersByTime(600_000);
    expect(out.split('\n').length - late).toBeLessThan(10);
    view.end();
    const ended = out;
    vi.advanceTimersByTime(600_000);
    expect(out).toBe(ended);
  });

  it('leaves out the error of one answer, and says where none was scored', () => {
    const one = new WatchedRun('mine');
    let out = '';
    const view = new PlainView((text) => (out += text));
    view.begin(one.progress);
    one.measure(0, { 'validation/sampled/mean': NaN, 'validation/sampled/stderr': NaN });
    one.measure(1, { 'validation/sampled/mean': 0.238, 'validation/sampled/stderr': NaN });
    view.finished('mine', 2);
    view.end();
    expect(out).toContain('mine  held-out at 0: – (unscored)\n');
    expect(out).toContain('held-out – (unscored) -> 0.24\n');
  });

  it.each([
    ['a new run', null],
    ['one that never came beyond its start', 0],
  ])('says an evaluation of %s that came before the first look', (_, reached) => {
    const one = new WatchedRun('mine', testFolder('live'), reached);
    one.measure(0, { 'validation/sampled/mean': 3 });
    let out = '';
    const view = new PlainView((text) => (out += text));
    view.begin(one.progress);
    vi.advanceTimersByTime(2000);
    expect(out).toBe('mine  held-out at 0: 3.00\n');
    view.end();
  });

  it('reports nothing of evaluations that an earlier attempt made', () => {
    const one = new WatchedRun('mine', testFolder('live'), 6);
    one.measure(0, { 'validation/sampled/mean': 2 });
    one.measure(6, { 'validation/sampled/mean': 3 });
    let out = '';
    const view = new PlainView((text) => (out += text));
    view.begin(one.progress);
    vi.advanceTimersByTime(2000);
    one.measure(9, { 'validation/sampled/mean': 4 });
    vi.advanceTimersByTime(2000);
    expect(out).toBe('mine  held-out at 9: 4.00\n');
  });

  it('says in a run of another trainer what that printed last', () => {
    const one = new WatchedRun('theirs');
    let out = '';
    const view = new PlainView((text) => (out += text));
    view.begin(one.progress);
    view.trainerLine('theirs', 'epoch 2:  45%|####\u001b[31m');
    vi.advanceTimersByTime(31_000);
    expect(out).toBe(`theirs  0/100  30 s elapsed  epoch 2: 45%|####${String.raw`\u001b`}[31m  CPU, 1 thread\n`);
  });
});

describe('on a terminal', () => {
  it('redraws one screen, whatever its height becomes, and leaves what was said', () => {
    const one = new WatchedRun('mine');
    const terminal = new TestTerminal();
    const view = new LiveView(terminal.stream);
    view.busy('reading configs/mine.jsonnet');
    expect(terminal.screen.map(plain)).toEqual(['reading configs/mine.jsonnet']);
    view.begin(one.progress);
    vi.advanceTimersByTime(1000);
    expect(terminal.screen.at(-1)).toContain('logs/console.log');
    one.measure(1, { 'reward/mean': 4, 'alarm/edge_density': 1 });
    one.state('waiting', 1, 'the judge is away');
    vi.advanceTimersByTime(1000);
    const screen = terminal.screen.map(plain);
    expect(screen.map((line) => line.slice(2).split(/ {2,}/)[0])).toEqual([
      '',
      'ne',
      '━'.repeat(0) + '┄'.repeat(40),
      'reward',
      'waits',
      'ALARM',
      'log',
    ]);
    view.workerLine('mine', 'warning: 3 episodes are unscored');
    view.workerLine('mine', 'warning: 4 episodes are unscored');
    view.end();
    expect(terminal.screen.map(plain)).toEqual(['warning: 3 episodes are unscored']);
  });

  it('has no color with NO_COLOR, and no escape sequence of what runs print', () => {
    vi.stubEnv('NO_COLOR', '1');
    const one = new WatchedRun('mine');
    const terminal = new TestTerminal();
    const view = openView(terminal.stream);
    view.begin(one.progress);
    view.workerLine('mine', 'error: \u001b]0;owned\u0007');
    view.trainerLine('mine', '\u001b[2J\u009b2J');
    vi.advanceTimersByTime(1000);
    view.end();
    expect(terminal.written).not.toMatch(new RegExp('\\u001b\\[[0-9;]*m|\\u001b\\]|\\u001b\\[2J|\\u0007|\\u009b'));
    expect(terminal.screen[0]).toBe(String.raw`error: \u001b]0;owned\u0007`);
  });
});

const jobs = [fakeJob('x__a'), fakeJob('x__b')];
const schedule = new Schedule(jobs, { retries: 0, failFast: false });
const running = { job: jobs[0], placement: { devices: [], threads: 1 }, startedMs: 0 };

describe('a sweep', () => {
  it('is printed line by line without a terminal, a failure with its last lines and its log, warnings with their run', () => {
    let out = '';
    const shown = new PlainView((text) => (out += text));
    const view = new SweepReporter('x', shown);
    view.begin(schedule, new Map([['x__a', running]]));
    view.report({ kind: 'started', running });
    shown.workerLine('x__a', 'starting x__a in /nowhere/x__a');
    shown.workerLine('x__a', 'warning: hack alarm: edge_density is 0.4');
    const failure = { reason: 'rank 0 was ended by SIGKILL', lastLines: ['step 1', 'step \u001b[2J'], advice: null };
    view.report({ kind: 'failed', running, failure, seconds: 3 });
    view.report({ kind: 'gave_up', name: 'x__a', reason: failure.reason });
    view.report({ kind: 'gave_up', name: 'x__b', reason: 'other settings' });
    view.report({ kind: 'finished', running, seconds: 4 });
    view.end();
    expect(out.split('\n')).toEqual([
      'x: 0 of 2 finished, 2 queued',
      'start    x__a (CPU, 1 thread)',
      'a: warning: hack alarm: edge_density is 0.4',
      'FAILED   x__a after 3 s: rank 0 was ended by SIGKILL',
      '         | step 1',
      String.raw`         | step \u001b[2J`,
      '         log: /nowhere/x__a/logs/console.log',
      'FAILED   x__b was not started: other settings',
      'finished x__a in 4 s',
      'x: 0 of 2 finished, 2 queued; 0 s',
      '',
    ]);
  });
});

describe('the time left', () => {
  it('counts only the iterations of this attempt if no times are recorded', () => {
    const one = new WatchedRun('mine');
    one.state('running', 40);
    expect(one.run.now().leftS).toBeNull();
    vi.advanceTimersByTime(2000);
    one.state('running', 42);
    expect(one.run.now().leftS).toBeNull();
    vi.advanceTimersByTime(28_000);
    one.measure(70, { 'policy/loss': 1, 'metrics/non_finite': 2 });
    expect(one.run.now()).toMatchObject({
      iteration: 70,
      leftS: 30,
      alarms: ['2 metrics are not finite'],
      objective: { label: 'loss', values: [1] },
    });
  });

  it('of a sweep takes queued runs to be as long as finished ones', () => {
    const one = new WatchedRun('x__a');
    let out = '';
    const view = new PlainView((text) => (out += text));
    const names = (phase: string): string[] => (phase === 'queued' ? ['x__b'] : phase === 'running' ? ['x__a'] : []);
    view.begin({ ...one.progress, title: 'x', names });
    view.finished('x__c', 100);
    vi.advanceTimersByTime(30_000);
    view.end();
    expect(out).toContain('x: 0 of 2 finished, 1 running, 1 queued; 30 s elapsed, about 2m 50s left\n');
  });

  it('is the median of the recorded times: a slow first iteration moves it no further than the line of the log', () => {
    const one = new WatchedRun('mine');
    const times = [600, 2, 3, 2, 4];
    const progress = new Progress([], 100);
    const lines = times.map((seconds, index) => {
      one.measure(index + 1, { 'time/total': seconds });
      return [one.run.now().leftS, progress.line(index + 1, { 'time/total': seconds })] as const;
    });
    expect(lines.map(([left]) => left)).toEqual([null, null, 3 * 97, 3 * 96, 3 * 95]);
    expect(lines.map(([, line]) => /(\S+|\d+m \d+s) left$/.exec(line)?.[1])).toEqual([
      '-',
      '-',
      '4m 51s',
      '4m 48s',
      '4m 45s',
    ]);
  });

  it('is not at the mercy of a run that cannot be read', () => {
    const one = new WatchedRun('mine');
    writeFileSync(one.paths.state, '{');
    expect(one.run.now()).toMatchObject({ iteration: 0, objective: null });
  });
});

it('shows small losses with digits that count', () => {
  const one = new WatchedRun('mine');
  one.state('running', 2);
  one.measure(0, { 'validation/loss': 0.1465 });
  one.measure(1, { 'policy/loss': 0.000_042_1, 'validation/loss': 0.000_023_14 });
  const row = one.run.now();
  expect(row.heldOut[0].points.map(({ shown }) => shown)).toEqual(['0.1465', '2.31e-5']);
  expect(row.objective?.values.map(row.objective.show)).toEqual(['4.21e-5']);
});

it('shows the held-out number that was measured last, where a reward is measured at the ends alone', () => {
  const one = new WatchedRun('mine');
  one.state('running', 100);
  one.measure(0, { 'validation/loss': 3, 'validation/sampled/mean': 0 });
  one.measure(100, { 'validation/loss': 0.5 });
  const line = (): string => runLine('mine', one.run.now(), 100);
  expect(line()).toContain('held-out loss 0.5000');
  one.measure(200, { 'validation/loss': 0.25, 'validation/sampled/mean': 4 });
  expect(line()).toContain('held-out 4.00');
});

describe('metrics that grow', () => {
  it('are read on, whatever becomes of the file', () => {
    const one = new WatchedRun('mine');
    const tail = new MetricsTail(one.paths.metrics, ['reward/mean']);
    tail.read();
    expect(tail.last).toBeNull();
    one.measure(0, { 'validation/loss': 3 });
    one.measure(1, { 'reward/mean': 1 });
    appendFileSync(one.paths.metrics, '{"iteration":2,"rew');
    tail.read();
    expect(tail.last?.iteration).toBe(1);
    appendFileSync(one.paths.metrics, 'ard/mean":"NaN"}\nno line\n');
    tail.read();
    expect(tail.last).toEqual({ iteration: 2, metrics: { 'reward/mean': NaN } });
    expect(tail.curve('reward/mean')).toEqual([1, NaN]);
    // A run that goes on from an earlier checkpoint.
    writeFileSync(one.paths.metrics, '{"iteration":0}\n');
    tail.read();
    expect([tail.last?.iteration, tail.curve('reward/mean'), tail.heldOut]).toEqual([0, [], []]);
  });

  it('of a long run are read from their end, with the first evaluation', () => {
    const one = new WatchedRun('mine');
    one.measure(0, { 'validation/loss': 3 });
    const row = (iteration: number): string => JSON.stringify({ iteration, 'reward/mean': 1, more: 'x'.repeat(200) });
    appendFileSync(one.paths.metrics, `${Array.from({ length: 9000 }, (_, i) => row(i + 1)).join('\n')}\n`);
    const tail = new MetricsTail(one.paths.metrics, ['reward/mean']);
    tail.read();
    expect(tail.last?.iteration).toBe(9000);
    expect(tail.curve('reward/mean').length).toBeLessThan(3000);
    expect(tail.heldOut.map(({ iteration }) => iteration)).toEqual([0]);
  });
});

/** Without colours. */
function plain(line: string): string {
  return line.replace(new RegExp('\\u001b\\[[0-9;]*m', 'g'), '');
}
