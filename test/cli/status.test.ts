import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { processStart } from '../../src/run/claim/lock.js';
import { capture, RunFolder } from './run_directory.js';

let folder: RunFolder;
let written: { out: string; error: string };
beforeEach(() => {
  folder = new RunFolder();
  written = capture();
});
afterEach(() => {
  vi.restoreAllMocks();
  folder.remove();
});

it('shows every run in a table', async () => {
  folder.make('done', 'finished');
  folder.make('gone', 'running');
  const live = folder.make('live', 'running');
  folder.lock(live, { host: hostname(), pid: process.pid, process_start: processStart(process.pid) });
  expect(await main(['ls', '--exp-dir', folder.dir])).toBe(0);
  const [titles, , ...rows] = written.out.trimEnd().split('\n');
  expect(titles.split(/ {2,}/)).toEqual(['run', 'state', 'iteration', 'reward', 'heartbeat']);
  const age = expect.stringMatching(/^\d+ s ago$/) as string;
  expect(rows.map((row) => row.split(/ {2,}/))).toEqual([
    ['done', 'finished', '4/10', '–', age],
    ['gone', 'dead', '4/10', '–', age],
    ['', 'no process is running it; continue with `editrl resume gone`'],
    ['live', 'running', '4/10', '–', age],
    ['', `${hostname()}, process ${process.pid}`],
  ]);
});

it('fits 80 columns, with whole names, and obeys nothing that a reason holds', async () => {
  const name = `kl_ablation__${'kl-3e-4__'.repeat(6)}seed-1`;
  folder.make(name, 'failed', `rank 0 said \u001b[2J \u202e${'out of memory '.repeat(20)}`);
  expect(await main(['ls', '--exp-dir', folder.dir])).toBe(0);
  for (const line of written.out.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
  expect(written.out).toContain(`\n${name}`);
  expect(written.out).toContain(String.raw`\u001b[2J`);
  expect(written.out).toContain(String.raw`\u202e`);
  expect(written.out).not.toMatch(/[\u001b\u202e]/);
  written.out = '';
  expect(await main(['ls', '--exp-dir', folder.dir, '--json'])).toBe(0);
  expect(written.out).not.toMatch(/[\u001b\u202e]/);
  expect((JSON.parse(written.out) as { runs: { reason: string }[] }).runs[0].reason).toContain('\u001b[2J \u202eout');
});

it('shows the hack alarms that are active', async () => {
  const paths = folder.make('a', 'finished');
  writeFileSync(paths.metrics, '{"iteration":4,"alarm/repeat_rate":1,"alarm/\\u001b[2J":1}\n');
  expect(await main(['ls', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out).toContain(String.raw`    ALARM repeat_rate, \u001b[2J`);
});

it('prints those that are named as one JSON document', async () => {
  folder.make('a', 'failed', 'out of memory');
  folder.make('b', 'finished');
  expect(await main(['status', 'a', '--exp-dir', folder.dir, '--json'])).toBe(0);
  expect(JSON.parse(written.out)).toEqual({
    runs: [
      {
        run_name: 'a',
        state: 'failed',
        iteration: 4,
        num_iterations: 10,
        reward: null,
        alarms: [],
        best_checkpoint: null,
        spent: null,
        heartbeat_age_s: expect.any(Number) as number,
        where: null,
        reason: 'out of memory',
      },
    ],
  });
});

it('says where it found none', async () => {
  expect(await main(['ls', '--exp-dir', folder.dir])).toBe(0);
  expect(written.out).toBe(`No runs in ${folder.dir}.\n`);
  expect(await main(['status', 'x', '--exp-dir', folder.dir])).toBe(1);
  expect(written.error).toContain(`no run named 'x' in ${folder.dir}`);
});
