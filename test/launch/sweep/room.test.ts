import { describe, expect, it } from 'vitest';
import { mainMemoryOf } from '../../../src/launch/machine/memory.js';
import type { SizedJob } from '../../../src/launch/sweep/plan.js';
import { fewerAtOnce, roomFor, sizeJobs, tooManyAtOnce, type Room } from '../../../src/launch/sweep/room.js';
import { smallSettings } from '../../recipes/text_answers/small.js';
import { fakeJob, FakeWorld } from './fakes.js';

const GIB = 2 ** 30;
const machine = { gpus: [], cpus: 16 };
const gpu = { index: 0, uuid: 'GPU-0', name: 'one', memoryBytes: null, usedBytes: null };

function room(jobs: readonly SizedJob[], maxParallel: number | null = null, free = 64, world = new FakeWorld()): Room {
  return roomFor({ jobs, devices: machine, allowed: null, maxParallel, freeBytes: free * GIB, world });
}

const sized = (
  name: string,
  gibibytes: number,
  parents: readonly string[] = [],
  more: Partial<SizedJob> = {},
): SizedJob => fakeJob(name, parents, { bytes: gibibytes * GIB, ...more });
const eight = Array.from({ length: 8 }, (_, i) => sized(`cell-${i}`, 10));

describe('the room of a sweep', () => {
  it('is for as many runs as fit into the memory that is free, which share the cores', () => {
    expect(room(eight)).toEqual({
      cpuSlots: 6,
      memoryBytes: 64 * GIB,
      leastBytes: 10 * GIB,
      tight: { most: 6, unbounded: 8, unbounded_bytes: 80 * GIB, free_bytes: 64 * GIB },
    });
    expect(room(eight, null, 80)).toEqual({ cpuSlots: 8, memoryBytes: 80 * GIB, leastBytes: 10 * GIB, tight: null });
  });

  it('is for one run at least, whatever it takes', () => {
    expect(room(eight, null, 4)).toMatchObject({ cpuSlots: 1, tight: { most: 1 } });
    expect(room([sized('alone', 100)])).toMatchObject({ cpuSlots: 1, tight: null });
  });

  it('is for as many as --max-parallel says, of which the memory that they take together is told', () => {
    expect(room(eight, 7)).toEqual({
      cpuSlots: 7,
      memoryBytes: Infinity,
      leastBytes: 10 * GIB,
      tight: { most: 7, unbounded: 7, unbounded_bytes: 70 * GIB, free_bytes: 64 * GIB },
    });
    expect(room(eight, 6).tight).toBeNull();
    expect(room(eight, 1, 4).tight).toBeNull();
  });

  it('is that of runs that can go at once: a large parent goes before its cells, and what is done takes nothing', () => {
    const cells = eight.map((cell) => ({ ...cell, parents: ['start'] }));
    const start = sized('start', 60);
    expect(room([start, ...cells]).tight).toMatchObject({ most: 6, unbounded: 8 });
    expect(room([start, ...cells.slice(0, 6)]).tight).toBeNull();
    const world = new FakeWorld();
    for (const { name } of eight.slice(0, 2)) world.states.set(name, { kind: 'finished', iteration: 100 });
    expect(room(eight, null, 64, world).tight).toBeNull();
  });

  it('is judged by what runs take at one moment, not by the most runs and the most bytes of different ones', () => {
    const small = eight.slice(0, 4).map((cell) => ({ ...cell, parents: ['start'], bytes: 5 * GIB }));
    const start = sized('start', 100);
    for (const maxParallel of [null, 4]) expect(room([start, ...small], maxParallel).tight).toBeNull();
    // Two moments do not fit. Of the first no run is held back in number, since more go at once later.
    const pair = [sized('start-a', 60), sized('start-b', 60)];
    const cells = eight.map((cell) => ({ ...cell, parents: ['start-a', 'start-b'] }));
    expect(room([...pair, ...cells]).tight).toMatchObject({ most: 6, unbounded: 8, unbounded_bytes: 80 * GIB });
    expect(room([...pair, ...cells], 8).tight).toMatchObject({ most: 2, unbounded: 2, unbounded_bytes: 120 * GIB });
  });

  it('says nothing where as many runs go at once as the cores take, or one of unknown size beside one that is too large', () => {
    const jobs = [sized('a', 60), sized('b', 60), sized('c', 1), sized('d', 1)];
    const place = { devices: { gpus: [], cpus: 2 }, allowed: null, freeBytes: 64 * GIB, world: new FakeWorld() };
    expect(roomFor({ ...place, jobs, maxParallel: null }).tight).toBeNull();
    for (const maxParallel of [null, 2]) {
      expect(room([sized('large', 100), fakeJob('unknown')], maxParallel).tight).toBeNull();
    }
  });

  it('holds back no run of unknown size, and none on a GPU', () => {
    const unknown = Array.from({ length: 4 }, (_, i) => fakeJob(`unknown-${i}`));
    expect(room([...eight, ...unknown]).tight).toMatchObject({ most: 10, unbounded: 12 });
    expect(room([...eight, ...unknown]).leastBytes).toBe(0);
    const onGpu = sized('on-gpu', 100, [], { device: 'gpu' });
    const found = roomFor({
      jobs: [onGpu, ...eight.slice(0, 6)],
      devices: { gpus: [gpu], cpus: 16 },
      allowed: null,
      maxParallel: null,
      freeBytes: 64 * GIB,
      world: new FakeWorld(),
    });
    expect(found).toMatchObject({ cpuSlots: 6, tight: null });
  });

  it('counts the processes of runs', () => {
    const wide = eight.map((job) => ({ ...job, processes: 2 }));
    expect(room(wide)).toMatchObject({ cpuSlots: 12, tight: { most: 6 } });
  });

  it('is told in one sentence', () => {
    const { tight } = room(eight);
    expect(fewerAtOnce(tight!)).toBe(
      'at most 6 runs at once, as many as fit by their estimates into the 64.0 GiB of memory that are free (the 8 that the cores would take need 80.0 GiB); --max-parallel starts as many as it says',
    );
    expect(fewerAtOnce(room(eight, null, 4).tight!)).toContain('at most 1 run at once');
    expect(tooManyAtOnce(room(eight, 7).tight!)).toBe(
      'the 7 runs that --max-parallel lets go at once are estimated to need 70.0 GiB of memory together, and 64.0 GiB are free: lower it, or leave it out, and as many go at once as fit',
    );
  });
});

describe('the memory of a job', () => {
  const bytesOf = (settings: ReturnType<typeof smallSettings>, gpus: (typeof gpu)[] = []): number => {
    const job = fakeJob('one', [], { config: { settings } as never });
    return sizeJobs([job], { gpus, cpus: 16 })[0].bytes;
  };

  it('is that of all its processes on the CPU, and none of this machine where it computes on GPUs or under Slurm', () => {
    const data = { train: [{ path: '/rows' }], validation: [], tiny: {} };
    const settings = smallSettings({ data });
    const one = mainMemoryOf(new Map(), machine)(settings);
    expect(one).toBeGreaterThan(300 * 2 ** 20);
    expect(bytesOf(settings)).toBe(one);
    expect(bytesOf(smallSettings({ data, launch: { processes: 2 } }))).toBe(2 * one);
    const { policy } = settings;
    const onGpu = smallSettings({ data, policy: { ...policy, engine: { provider: 'cuda', threads: 1 } } });
    expect(bytesOf(onGpu, [gpu])).toBe(0);
    expect(bytesOf(smallSettings({ data, launch: { backend: 'slurm' } }))).toBe(0);
    expect(sizeJobs([fakeJob('another trainer')], machine)[0].bytes).toBe(0);
  });
});
