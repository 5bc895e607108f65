import { describe, expect, it } from 'vitest';
import { mainMemory, memoryOf } from '../../../src/launch/machine/estimate.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { roomFor, sizeJobs, type Room, type SizedJob } from '../../../src/launch/sweep/plan.js';
import { smallSettings } from '../../recipes/text_answers/small.js';
import { fakeJob, FakeWorld } from './fakes.js';

const GIB = 2 ** 30;
const machine = { gpus: [], cpus: 16 };
const gpu = { index: 0, uuid: 'GPU-0', name: 'one', memoryBytes: null, usedBytes: null };

function room(jobs: readonly SizedJob[], maxParallel: number | null = null, free = 64, world = new FakeWorld()): Room {
  return roomFor({ jobs, devices: machine, maxParallel, freeBytes: free * GIB, world });
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
      tight: { most: 6, run_bytes: 10 * GIB, free_bytes: 64 * GIB },
    });
    expect(room(eight, null, 80)).toEqual({ cpuSlots: 8, memoryBytes: 80 * GIB, leastBytes: 10 * GIB, tight: null });
  });

  it('is for one run at least, whatever it takes', () => {
    expect(room(eight, null, 4)).toMatchObject({ cpuSlots: 1, tight: { most: 1 } });
    expect(room([sized('alone', 100)])).toMatchObject({ cpuSlots: 1, tight: null });
  });

  it('is for as many as --max-parallel says, and warns if they do not fit', () => {
    expect(room(eight, 7)).toEqual({
      cpuSlots: 7,
      memoryBytes: Infinity,
      leastBytes: 10 * GIB,
      tight: { most: 7, run_bytes: 10 * GIB, free_bytes: 64 * GIB },
    });
    expect(room(eight, 6).tight).toBeNull();
  });

  it('counts the cores, the processes of runs, and no run that is done', () => {
    expect(room(eight.map((job) => ({ ...job, processes: 2 })))).toMatchObject({ cpuSlots: 12, tight: { most: 6 } });
    const two = { devices: { cpus: 2 }, maxParallel: null, freeBytes: 25 * GIB };
    expect(roomFor({ ...two, jobs: eight, world: new FakeWorld() }).tight).toBeNull();
    const world = new FakeWorld();
    for (const { name } of eight.slice(0, 2)) world.states.set(name, { kind: 'finished' });
    expect(room(eight, null, 64, world).tight).toBeNull();
  });

  it('holds back nothing where a run is of unknown size, and none on a GPU', () => {
    expect(room([...eight, fakeJob('unknown')])).toMatchObject({ leastBytes: 0, tight: null });
    const onGpu = sized('on-gpu', 1, [], { device: 'gpu' });
    expect(room([onGpu, ...eight.slice(0, 6)])).toMatchObject({ cpuSlots: 6, leastBytes: 10 * GIB, tight: null });
  });
});

const memoryOn = (gpus: (typeof gpu)[]) => memoryOf(shapesOf(new Map()), { gpus, cpus: 16 });

describe('the memory of a job', () => {
  const bytesOf = (settings: ReturnType<typeof smallSettings>, gpus: (typeof gpu)[] = []): number => {
    const job = fakeJob('one', [], { config: { settings } as never });
    return sizeJobs([job], memoryOn(gpus))[0].bytes;
  };

  it('is that of all its processes on the CPU, and none of this machine where it computes on GPUs or under Slurm', () => {
    const data = { train: [{ path: '/rows' }], validation: [], tiny: {} };
    const settings = smallSettings({ data });
    const one = mainMemory(memoryOn([])(settings));
    expect(one).toBeGreaterThan(300 * 2 ** 20);
    expect(bytesOf(settings)).toBe(one);
    expect(bytesOf(smallSettings({ data, launch: { processes: 2 } }))).toBe(2 * one);
    const { policy } = settings;
    const onGpu = smallSettings({ data, policy: { ...policy, engine: { provider: 'cuda', threads: 1 } } });
    expect(bytesOf(onGpu, [gpu])).toBe(0);
    expect(bytesOf(smallSettings({ data, launch: { backend: 'slurm' } }))).toBe(0);
    expect(sizeJobs([fakeJob('another trainer')], memoryOn([]))[0].bytes).toBe(0);
  });
});
