import { describe, expect, it } from 'vitest';
import { textWidth } from '../../../src/core/terminal.js';
import { countsLine, renderScreen, runLine, shortName, type LiveSnapshot } from '../../../src/launch/live/screen.js';
import type { RunProgress } from '../../../src/launch/live/watch.js';

const names = {
  queued: ['table__reward-ground__seed-1', 'table__reward-ground__seed-2', 'table__reward-ground__seed-3'],
  running: ['a', 'b'],
  elsewhere: [],
  finished: ['c', 'd'],
  failed: ['e'],
  blocked: [],
  interrupted: [],
};

const working: RunProgress = {
  name: 'table__reward-viescore__seed-1',
  iteration: 30,
  numIterations: 60,
  reached: 0,
  waitsFor: null,
  objective: { metric: 'reward/mean', label: 'reward', show: (value) => value.toFixed(2), values: [3, 4, 5, 6.12] },
  heldOut: [
    {
      label: 'held-out',
      points: [
        { iteration: 0, shown: '3.18 ± 0.23' },
        { iteration: 20, shown: '4.02 ± 0.24' },
      ],
    },
    { label: 'greedy', points: [{ iteration: 20, shown: '4.41 ± 0.20' }] },
  ],
  figures: ['KL 0.0123', 'entropy 0.412', '3,870 tokens/s', '0.84 s/iteration'],
  alarms: [],
  says: null,
  elapsedS: 62,
  leftS: 61,
  where: 'CPU, 1 thread',
  log: 'runs/table__reward-viescore__seed-1/logs/console.log',
};
const waiting: RunProgress = {
  ...working,
  name: 'table__reward-viescore__seed-2',
  waitsFor: 'the judge at http://j:1\n\u001b[2J says 503',
  alarms: ['edge_density'],
  elapsedS: 2,
  leftS: null,
};
const snapshot: LiveSnapshot = {
  title: 'table',
  names,
  running: [working, waiting],
  elapsedS: 500,
  leftS: 240,
};

describe('the live screen', () => {
  it('shows one run with all about it', () => {
    const one = { ...snapshot, running: [working] };
    expect(renderScreen(one, { columns: 80, rows: 24 })).toEqual([
      '',
      'table  2 of 8 finished, 2 running, 3 queued, 1 failed  8m 20s elapsed, about 4m',
      '00s left',
      '  reward-viescore__seed-1',
      '  ━━━━━━━━━━━━━━━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄  30/60  1m 02s elapsed, 1m 01s left',
      '  reward    6.12  ▁▃▆█  3.00 to 6.12',
      '  held-out  3.18 ± 0.23 at 0 -> 4.02 ± 0.24 at 20',
      '  greedy    4.41 ± 0.20 at 20',
      '            KL 0.0123  entropy 0.412  3,870 tokens/s  0.84 s/iteration',
      '  log       runs/table__reward-viescore__seed-1/logs/console.log  CPU, 1 thread',
      '  next: reward-ground__seed-1, reward-ground__seed-2, reward-ground__seed-3',
    ]);
  });

  it('shows what a run waits for and its alarms, and escapes control characters', () => {
    const lines = renderScreen({ ...snapshot, running: [waiting] }, { columns: 80, rows: 24 });
    expect(lines).toContain(String.raw`  waits     the judge at http://j:1 \u001b[2J says 503`);
    expect(lines).toContain('  ALARM     edge_density');
  });

  it('shows several runs in a line each', () => {
    expect(renderScreen(snapshot, { columns: 130, rows: 30 })).toEqual([
      '',
      'table  2 of 8 finished, 2 running, 3 queued, 1 failed  8m 20s elapsed, about 4m 00s left',
      '  reward-viescore__seed-1  30/60  reward 6.12  held-out 4.02 ± 0.24  1m 01s left  CPU, 1 thread',
      String.raw`  reward-viescore__seed-2  30/60  ALARM edge_density  waits: the judge at http://j:1 \u001b[2J says 503  reward 6.12  2 s elapsed`,
      '  next: reward-ground__seed-1, reward-ground__seed-2, reward-ground__seed-3',
    ]);
  });

  it.each([200, 80, 60, 40, 24])('fits a terminal of %i columns', (columns) => {
    for (const running of [[working], [waiting], [working, waiting]]) {
      const lines = renderScreen({ ...snapshot, running }, { columns, rows: 30 });
      for (const line of lines) expect(textWidth(line)).toBeLessThan(columns);
      expect(lines.join('\n')).toContain('30/60');
    }
  });

  it('fits a low terminal', () => {
    const running = Array.from({ length: 40 }, (_, i) => ({ ...working, name: `table__seed-${i}` }));
    const lines = renderScreen({ ...snapshot, running }, { columns: 80, rows: 12 });
    expect(lines.length).toBeLessThan(12);
    expect(lines.join('\n')).toContain('and 35 more');
    expect(renderScreen({ ...snapshot, running: [working] }, { columns: 80, rows: 6 })).toHaveLength(5);
  });

  it('leaves the experiment out of names, and phases that no run is in out of the counts', () => {
    expect(shortName('table', 'table__seed-1')).toBe('seed-1');
    expect(shortName('table', 'sft_s')).toBe('sft_s');
    expect(countsLine({ ...snapshot, names: { ...names, failed: [], queued: [], running: [] } })).toBe(
      '2 of 2 finished',
    );
  });
});

describe('a line', () => {
  it('of a run says what matters most first', () => {
    expect(runLine('table', working, 80)).toBe(
      'reward-viescore__seed-1  30/60  reward 6.12  held-out 4.02 ± 0.24  1m 01s left',
    );
    const line = runLine('table', waiting, 80);
    expect(line).toMatch(/^reward-viescore__seed-2 {2}30\/60 {2}ALARM edge_density/);
    expect(textWidth(line)).toBeLessThanOrEqual(80);
  });
});
