import { describe, expect, it } from 'vitest';
import { RunError } from '../../../src/core/errors.js';
import { Watch, type Standing } from '../../../src/launch/sweep/progress.js';
import { Schedule } from '../../../src/launch/sweep/schedule.js';
import type { RunningJob } from '../../../src/launch/sweep/sweep.js';
import { countsLine, renderTable, shortName } from '../../../src/launch/sweep/table.js';
import { LiveView, PlainView } from '../../../src/launch/sweep/view.js';
import { fakeJob } from './fakes.js';

const counts = {
  queued: 3,
  running: 2,
  elsewhere: 0,
  at_rung: 0,
  finished: 7,
  stopped: 0,
  failed: 1,
  blocked: 0,
  interrupted: 0,
};

const standing: Standing = {
  total: 13,
  counts,
  running: [
    {
      name: 'table__reward-viescore__seed-1',
      iteration: 30,
      numIterations: 60,
      waiting: false,
      latest: 'reward 6.12',
      heldOut: 5.4,
      elapsedS: 62,
      leftS: 61,
      where: 'CPU, 1 thread',
    },
    {
      name: 'table__reward-viescore__seed-2',
      iteration: 0,
      numIterations: 60,
      waiting: false,
      latest: '',
      heldOut: null,
      elapsedS: 2,
      leftS: null,
      where: 'CPU, 1 thread',
    },
  ],
  next: ['table__reward-ground__seed-1', 'table__reward-ground__seed-2', 'table__reward-ground__seed-3'],
  elapsedS: 500,
  leftS: 240,
};

describe('the live table', () => {
  it('shows what runs, what comes and how it stands', () => {
    expect(renderTable('table', standing, { columns: 120, rows: 30 })).toEqual([
      '',
      'table  7 of 13 finished, 2 running, 3 queued, 1 failed  8m 20s, about 4m 00s left',
      '  run                      iteration                         latest  held-out    time    left  on',
      '  reward-viescore__seed-1      30/60  ━━━━━━━━┄┄┄┄┄┄┄┄  reward 6.12      5.40  1m 02s  1m 01s  CPU, 1 thread',
      '  reward-viescore__seed-2       0/60  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄                            2 s          CPU, 1 thread',
      '  next: reward-ground__seed-1, reward-ground__seed-2, reward-ground__seed-3',
    ]);
  });

  it.each([200, 80, 60, 40, 24])('fits a terminal of %i columns', (columns) => {
    const lines = renderTable('table', standing, { columns, rows: 30 });
    for (const line of lines) expect([...line].length).toBeLessThan(columns);
    expect(lines.join('\n')).toContain('30/60');
  });

  it('fits a low terminal', () => {
    const running = Array.from({ length: 40 }, (_, i) => ({ ...standing.running[0], name: `table__seed-${i}` }));
    const lines = renderTable('table', { ...standing, running }, { columns: 80, rows: 12 });
    expect(lines.length).toBeLessThan(12);
    expect(lines.join('\n')).toContain('and 35 more');
  });

  it('leaves the experiment out of names, and phases that no run is in out of the counts', () => {
    expect(shortName('table', 'table__seed-1')).toBe('seed-1');
    expect(shortName('table', 'sft_s')).toBe('sft_s');
    expect(countsLine({ ...standing, counts: { ...counts, failed: 0, queued: 0, running: 0 } })).toBe(
      '7 of 13 finished',
    );
  });
});

const jobs = [fakeJob('x__a'), fakeJob('x__b')];
const running: RunningJob = {
  job: jobs[0],
  placement: { devices: [], threads: 1 },
  untilIteration: 100,
  startedMs: performance.now(),
};
const schedule = new Schedule(jobs, { retries: 0, failFast: false, halving: null, measure: () => null });

describe('events', () => {
  it('are lines of their own without a terminal, a failure with its last lines and its log', () => {
    const out: string[] = [];
    const view = new PlainView(
      'x',
      (text) => out.push(text),
      (text) => text,
    );
    view.begin(schedule, new Map());
    view.tell({ kind: 'started', running });
    const failure = { reason: 'rank 0 was ended by SIGKILL', lastLines: ['step 1', 'step 2'], advice: null };
    view.tell({ kind: 'failed', running, failure, seconds: 3 });
    view.tell({ kind: 'gave_up', name: 'x__a', reason: failure.reason });
    view.tell({ kind: 'gave_up', name: 'x__b', reason: 'other settings' });
    view.end();
    expect(out.join('')).toBe(
      [
        'x: 0 of 2 finished, 2 queued',
        'start    x__a (CPU, 1 thread)',
        'FAILED   x__a after 3 s: rank 0 was ended by SIGKILL',
        '         | step 1',
        '         | step 2',
        '         log: /nowhere/x__a/logs/console.log',
        'FAILED   x__b was not started: other settings',
        'x: 0 of 2 finished, 2 queued',
        '',
      ].join('\n'),
    );
  });

  it('stand above the table on a terminal, which is redrawn in its place', () => {
    const out: string[] = [];
    const terminal = { write: (text: string) => out.push(text), columns: 80, rows: 24 };
    const view = new LiveView('x', terminal, (text) => text);
    view.begin(schedule, new Map());
    view.tell({ kind: 'finished', running, seconds: 3 });
    view.end();
    expect(screen(out.slice(0, 2).join(''))).toEqual([
      'finished x__a in 3 s',
      '',
      expect.stringContaining('x  0 of 2 finished, 2 queued'),
      '  next: a, b',
    ]);
    expect(screen(out.join(''))).toEqual(['finished x__a in 3 s', '', 'x  0 of 2 finished, 2 queued  0 s']);
  });
});

/** What a terminal shows after such a text: it knows the three sequences that the view uses. */
function screen(text: string): string[] {
  const lines: string[] = [''];
  let row = 0;
  let column = 0;
  // A sequence, a line end, or what lies between.
  for (const [piece, , count, letter] of text.matchAll(
    new RegExp('(\\u001b\\[(\\d*)([FKJ]))|\\n|[^\\n\\u001b]+', 'g'),
  )) {
    lines[row] ??= '';
    if (letter === 'K') lines[row] = lines[row].slice(0, column);
    else if (letter === 'J') lines.splice(row);
    else if (letter === undefined && piece !== '\n') lines[row] = piece;
    column = letter === undefined && piece !== '\n' ? piece.length : 0;
    if (piece === '\n') row++;
    if (letter === 'F') row -= Number(count);
  }
  return lines.slice(0, lines.at(-1) === '' ? -1 : undefined);
}

describe('the time left', () => {
  it('counts only the iterations of this attempt, and the runs to come as long as those before', () => {
    let iteration = 40;
    const look = (): { iteration: number; state: string; metrics: Record<string, number> } => ({
      iteration,
      state: 'running',
      metrics: { 'reward/mean': 1 },
    });
    const watch = new Watch(schedule, new Map([['x__a', running]]), look);
    expect(watch.now().running[0].leftS).toBeNull();
    iteration = 70;
    const row = watch.now().running[0];
    expect(row.leftS).toBeGreaterThan(0);
    expect(row).toMatchObject({ iteration: 70, numIterations: 100, latest: 'reward 1.00' });
    watch.finished(10);
    expect(watch.now().leftS).toBeGreaterThan(20);
  });

  it('is not at the mercy of a run that cannot be read', () => {
    expect(() => new Watch(schedule, new Map([['x__a', running]])).now()).not.toThrow(RunError);
  });
});
