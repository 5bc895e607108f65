import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir, uptime } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { realLockWorld, type LockWorld } from '../../src/run/claim/lock.js';
import { RunPaths } from '../../src/run/paths.js';
import type { RunStateName } from '../../src/run/state.js';
import { readStatus } from '../../src/run/status.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-status-'));
const NOW = Date.parse('2026-01-01T12:00:00Z');
let counter = 0;
let paths: RunPaths;

beforeEach(() => {
  paths = new RunPaths(base, `run${counter++}`);
  mkdirSync(paths.dir, { recursive: true });
  writeFileSync(
    paths.record,
    JSON.stringify({ format: 1, settings: { num_iterations: 10 }, attempts: [{ attempt: 1, devices: ['GPU 0'] }] }),
  );
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

function world(alive: Readonly<Record<number, string>>, slurmEnded: boolean | null = null): LockWorld {
  return {
    ...realLockWorld(),
    host: 'here',
    nowMs: () => NOW,
    processStart: (pid) => alive[pid] ?? null,
    slurmJobEnded: () => slurmEnded,
  };
}

function state(name: RunStateName, reason: string | null = null): void {
  const heartbeat = new Date(NOW - 30_000).toISOString();
  writeFileSync(paths.state, JSON.stringify({ state: name, iteration: 4, num_iterations: 10, heartbeat, reason }));
}

function lock(held: { host?: string; slurm_job_id?: string; ageS?: number } = {}): void {
  const { host = 'here', slurm_job_id = null, ageS = 5 } = held;
  writeFileSync(paths.lock, JSON.stringify({ token: 't', host, pid: 77, process_start: 'a', slurm_job_id }));
  utimesSync(paths.lock, NOW / 1000 - ageS, NOW / 1000 - ageS);
}

describe('the status of a run', () => {
  it('shows state, progress, reward and machine', () => {
    state('running');
    lock();
    writeFileSync(
      paths.metrics,
      '{"iteration":3,"reward/mean":1,"alarm/b":1}\n{"iteration":4,"reward/mean":2.5,"alarm/a":1}\n{"iteration":5,"rew',
    );
    expect(readStatus(paths, world({ 77: 'a' }))).toEqual({
      run_name: paths.runName,
      state: 'running',
      iteration: 4,
      num_iterations: 10,
      reward: 2.5,
      best_checkpoint: null,
      spent: null,
      alarms: ['a'],
      heartbeat_age_s: 5,
      where: 'here, process 77, GPU 0',
      reason: null,
    });
  });

  it.each([
    ['its process is gone', {}, {}, null, 'process 77 is gone'],
    ['its pid is another process', {}, { 77: 'b' }, null, 'process 77 is gone'],
    ['its host is silent', { host: 'there', ageS: 600 }, {}, null, 'no heartbeat from there for 10 min'],
    ['its job has ended', { host: 'there', ageS: 600, slurm_job_id: '9' }, {}, true, 'no heartbeat from there'],
  ] as const)('is dead when %s, and says what to do', (_, held, alive, ended, says) => {
    state('running');
    lock(held);
    const status = readStatus(paths, world(alive, ended));
    expect(status).toMatchObject({ state: 'dead', where: null });
    expect(status.reason).toContain(says);
    expect(status.reason).toContain(`editrl resume ${paths.runName}`);
  });

  it('is dead when the state reports that it runs and no one holds it', () => {
    state('waiting', 'the judge does not answer');
    expect(readStatus(paths, world({}))).toMatchObject({ state: 'dead', heartbeat_age_s: 30 });
  });

  it('is running on another host whose heart beats, or whose job Slurm still knows', () => {
    state('running');
    lock({ host: 'there' });
    expect(readStatus(paths, world({}))).toMatchObject({ state: 'running', where: 'there, process 77, GPU 0' });
    lock({ host: 'there', ageS: 600, slurm_job_id: '9' });
    const silent = readStatus(paths, world({}, false));
    expect(silent).toMatchObject({ state: 'running', where: 'Slurm job 9 on there' });
    expect(silent.reason).toContain('no heartbeat for 10 min');
  });

  it('is not silent where the clock was set forward: a heartbeat is not older than its process', () => {
    state('running');
    const held = (startedS: number): void => {
      const start = String(Math.round((uptime() - startedS) * 100));
      writeFileSync(paths.lock, JSON.stringify({ token: 't', host: 'here', pid: 77, process_start: start }));
      const then = NOW / 1000 - 48 * 3600;
      utimesSync(paths.lock, then, then);
      expect(readStatus(paths, world({ 77: start })).state).toBe('running');
    };
    held(60);
    const { process_start } = JSON.parse(readFileSync(paths.lock, 'utf8')) as { process_start: string };
    expect(readStatus(paths, world({ 77: process_start }))).toMatchObject({ reason: null, heartbeat_age_s: null });
  });

  it('keeps the reason of a run that ended, and asks no one about it', () => {
    state('failed', 'worker 0 ran out of memory');
    expect(readStatus(paths, world({}))).toMatchObject({
      state: 'failed',
      reason: 'worker 0 ran out of memory',
      where: null,
    });
  });

  it('has no reward before there are metrics, nor where the last line has none', () => {
    state('finished');
    expect(readStatus(paths, world({})).reward).toBeNull();
    writeFileSync(paths.metrics, '');
    expect(readStatus(paths, world({})).reward).toBeNull();
    appendFileSync(paths.metrics, '{"iteration":0,"reward/mean":"NaN"}\n');
    expect(readStatus(paths, world({})).reward).toBeNull();
    appendFileSync(paths.metrics, `{"iteration":1,"pad":"${'x'.repeat(20_000)}","reward/mean":3}\n`);
    expect(readStatus(paths, world({})).reward).toBe(3);
  });

  it('calls what it cannot read unreadable, and continues', () => {
    writeFileSync(
      paths.record,
      JSON.stringify({ format: 2, settings: {}, attempts: [{ versions: { editrl: '9.1.0' } }] }),
    );
    const status = readStatus(paths, world({}));
    expect(status.state).toBe('unreadable');
    expect(status.reason).toContain('(format 2, written by editrl 9.1.0) Use the version that wrote it');
  });
});
