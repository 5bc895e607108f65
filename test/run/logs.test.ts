import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { lossColumns, rewardColumns } from '../../src/recipes/recipe.js';
import { FILES_ONLY, openRunLog } from '../../src/run/logs.js';
import { RunPaths } from '../../src/run/paths.js';
import { formatDuration, Progress } from '../../src/run/progress.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-logs-'));
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

describe('logs', () => {
  it('writes lines for people, JSON lines for machines, and keeps attempts apart', async () => {
    const paths = new RunPaths(base, 'run');
    let shown = '';
    const terminal = (line: string): void => {
      shown += `${line}
`;
    };
    const first = openRunLog({ paths, attempt: 1, rank: 0, terminal });
    first.logger.info('starting');
    first.logger.debug('detail', { iteration: 3 });
    first.logger.warn('judge is slow');
    first.logger.info('iteration 1/9', FILES_ONLY);
    // Before it is closed: a killed process loses no line.
    expect(readFileSync(paths.rankLog(1, 0), 'utf8').trimEnd().split('\n')).toHaveLength(4);
    await first.close();
    const other = openRunLog({ paths, attempt: 1, rank: 1, terminal: null });
    other.logger.error('out of memory');
    await other.close();
    const second = openRunLog({ paths, attempt: 2, rank: 0, terminal: null });
    second.logger.info('resumed');
    await second.close();

    expect(shown.replaceAll('\r', '')).toBe('starting\nwarning: judge is slow\n');
    expect(readFileSync(paths.consoleLog(1), 'utf8')).toMatch(
      /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d {2}starting\n\d{4}.* {2}warning: judge is slow\n\d{4}.* {2}iteration 1\/9\n$/,
    );
    const lines = readFileSync(paths.rankLog(1, 0), 'utf8').trimEnd().split('\n');
    expect(JSON.parse(lines[3])).not.toHaveProperty('in_passing');
    expect(JSON.parse(lines[1])).toMatchObject({
      level: 'debug',
      message: 'detail',
      iteration: 3,
      rank: 0,
      attempt: 1,
    });
    expect(readFileSync(paths.rankLog(1, 1), 'utf8')).toContain('out of memory');
    expect(readdirSync(paths.logsDir).sort()).toEqual(['attempt_001', 'attempt_002', 'console.log', 'rank_0.log']);
    expect(readlinkSync(join(paths.logsDir, 'console.log'))).toBe(join('attempt_002', 'console.log'));
    expect(readFileSync(join(paths.logsDir, 'console.log'), 'utf8')).toContain('resumed');
  });
});

describe('a line of the log', () => {
  it('shows what others said with its control characters spelled out', async () => {
    const paths = new RunPaths(base, 'hostile');
    let shown = '';
    const terminal = (line: string): void => {
      shown += `${line}
`;
    };
    const log = openRunLog({ paths, attempt: 1, rank: 0, terminal });
    log.logger.warn('the judge said \u001b]0;owned\u0007\u009b2J');
    await log.close();
    expect(shown.trimEnd()).toBe(String.raw`warning: the judge said \u001b]0;owned\u0007\u009b2J`);
    expect(readFileSync(paths.consoleLog(1), 'utf8')).not.toMatch(/[\u001b\u0007\u009b]/);
  });
});

describe('progress', () => {
  it('keeps its columns under each other', () => {
    const progress = new Progress(rewardColumns, 60);
    const step = (iteration: number, reward: number, seconds: number): string =>
      progress.line(iteration, {
        'reward/mean': reward,
        'policy/kl': 0.00123,
        'policy/entropy': 1.5,
        'tokens/s': 12345.6,
        'time/total': seconds,
      });
    const lines = [step(1, 4.4, 1), step(2, 5, 2), step(12, 10, 2), progress.line(13, { 'reward/mean': NaN })];
    expect(lines.join('\n')).toMatchInlineSnapshot(`
      "iteration  1/60  reward  4.400  KL  0.0012  entropy  1.500   12,346 tokens/s  1.00 s/it        - left
      iteration  2/60  reward  5.000  KL  0.0012  entropy  1.500   12,346 tokens/s  2.00 s/it        - left
      iteration 12/60  reward 10.000  KL  0.0012  entropy  1.500   12,346 tokens/s  2.00 s/it   1m 36s left
      iteration 13/60  reward    NaN  KL       -  entropy      -        -                -/it   1m 34s left"
    `);
    expect(new Set(lines.map((line) => line.length)).size).toBe(1);
  });

  it('estimates the remaining time from the usual iteration, also before a resume', () => {
    const left = (progress: Progress, iteration: number, seconds: number): string =>
      progress.line(iteration, { 'time/total': seconds }).slice(-12).trim();
    const resumed = new Progress(lossColumns, 100, [NaN, 1, 1, 1.2, 0.8, 1]);
    expect(left(resumed, 40, 12)).toBe('1m 00s left');
    expect(Array.from({ length: 9 }, (_, i) => left(resumed, 41 + i, 2)).at(-1)).toBe('1m 42s left');
  });

  it('shows the last known held-out loss of a supervised run', () => {
    const progress = new Progress(lossColumns, 400);
    const lines = [
      progress.line(0, { 'validation/loss': 3.5 }),
      progress.line(1, { 'policy/loss': 3.25, 'time/total': 0.15, 'tokens/s': 9000 }),
    ];
    expect(lines.join('\n')).toMatchInlineSnapshot(`
      "iteration   0/400  loss       -  held-out loss  3.5000        -                -/it        - left
      iteration   1/400  loss  3.2500  held-out loss  3.5000    9,000 tokens/s  0.15 s/it        - left"
    `);
  });

  it.each([
    [12.4, '12 s'],
    [65, '1m 05s'],
    [3 * 3600 + 7 * 60, '3h 07m'],
    [2 * 86400 + 4 * 3600, '2d 04h'],
    [NaN, '-'],
  ])('says %d seconds as %s', (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
  });
});
