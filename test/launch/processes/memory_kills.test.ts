import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MemoryKills } from '../../../src/launch/processes/failure.js';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-kernel-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

function put(file: string, text: string): void {
  const path = join(dir, file);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

const kills = (): MemoryKills => new MemoryKills({ proc: join(dir, 'proc'), cgroup: join(dir, 'cgroup') });

describe.each([
  ['2', '0::/a/job\n', 'cgroup/a/job/memory.events', 'low 0\noom 3\noom_kill 1\n', 'memory.max'],
  [
    '1',
    '9:cpu,cpuacct:/\n4:memory:/a/job\n0::/\n',
    'cgroup/memory/a/job/memory.oom_control',
    'under_oom 0\noom_kill 1\n',
    'memory.limit_in_bytes',
  ],
])('version %s of control groups', (_version, groups, file, counted, limit) => {
  it('reports a kill in the group of a rank, and its limit', () => {
    put('proc/77/cgroup', groups);
    put(file, counted);
    put(join(dirname(file), limit), `${64 * 2 ** 20}\n`);
    const watched = kills();
    watched.sample([77], 0);
    expect(watched.recent()).toBeNull();
    put(file, counted.replace('oom_kill 1', 'oom_kill 2'));
    expect(watched.recent()).toEqual({ limitBytes: 64 * 2 ** 20 });
  });

  it('knows a group without a limit', () => {
    put('proc/77/cgroup', groups);
    put(file, counted);
    put(join(dirname(file), limit), limit === 'memory.max' ? 'max\n' : '9223372036854771712\n');
    const watched = kills();
    watched.sample([77], 0);
    put(file, counted.replace('oom_kill 1', 'oom_kill 2'));
    expect(watched.recent()).toEqual({ limitBytes: null });
  });
});

describe('kills', () => {
  it('are counted on the whole machine if no group counts them', () => {
    put('proc/vmstat', 'nr_free_pages 9\noom_kill 4\n');
    const watched = kills();
    watched.sample([], 0);
    put('proc/vmstat', 'nr_free_pages 9\noom_kill 5\n');
    expect(watched.recent()).toEqual({ limitBytes: null });
  });

  it('are not those of others where the own group counts', () => {
    put('proc/self/cgroup', '0::/mine\n');
    put('cgroup/mine/memory.events', 'oom_kill 0\n');
    put('proc/vmstat', 'oom_kill 4\n');
    const watched = kills();
    watched.sample([], 0);
    put('proc/vmstat', 'oom_kill 5\n');
    expect(watched.recent()).toBeNull();
  });

  it('are forgotten after a while', () => {
    put('proc/vmstat', 'oom_kill 4\n');
    const watched = kills();
    watched.sample([], 0);
    put('proc/vmstat', 'oom_kill 5\n');
    for (let second = 1; second < 15; second++) watched.sample([], second * 1000);
    expect(watched.recent()).not.toBeNull();
    for (let second = 15; second < 40; second++) watched.sample([], second * 1000);
    expect(watched.recent()).toBeNull();
  });

  it('are none if nothing can be read', () => {
    const watched = kills();
    watched.sample([1], 0);
    expect(watched.recent()).toBeNull();
  });
});
