import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ConfigError, EditrlError, InternalError, RunError } from '../../../src/core/errors.js';
import type { Machine } from '../../../src/compute/onnx/cuda.js';
import {
  detectDevices,
  DeviceSlots,
  devicesOfRank,
  parseGpuProcesses,
  parseGpus,
  processCount,
  requireFree,
  describeTakenGpus,
  visibleGpus,
  wholeMachinePlacement,
  type Devices,
} from '../../../src/launch/machine/devices.js';

const FOUR = `0, GPU-6f2a0d11-0000-4a6e-9d3e-000000000001, NVIDIA H200, 143771, 0
1, GPU-6f2a0d11-0000-4a6e-9d3e-000000000002, NVIDIA H200, 143771, 71234
2, GPU-7b2a0d11-0000-4a6e-9d3e-000000000003, NVIDIA H200, 143771, 4
3, GPU-8c2a0d11-0000-4a6e-9d3e-000000000004, NVIDIA H200, 143771, 612
`;
const [U0, U1, U2] = FOUR.split('\n').map((line) => line.split(', ')[1]);
const UNIFIED = '0, GPU-aa, NVIDIA GB10, [N/A], [N/A]\n';

const four: Devices = { gpus: parseGpus(FOUR), cpus: 16 };
const cpuOnly: Devices = { gpus: [], cpus: 8 };

function textOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof EditrlError) return error.toText();
    throw error;
  }
  return 'nothing was raised';
}

describe('what nvidia-smi says', () => {
  it('is a table of GPUs with memory in bytes', () => {
    expect(four.gpus.map(({ index, usedBytes }) => [index, usedBytes])).toEqual([
      [0, 0],
      [1, 71_234 * 2 ** 20],
      [2, 4 * 2 ** 20],
      [3, 612 * 2 ** 20],
    ]);
    expect(four.gpus[0]).toMatchObject({ uuid: U0, name: 'NVIDIA H200', memoryBytes: 143_771 * 2 ** 20 });
  });

  it('may leave memory untold', () => {
    expect(parseGpus(UNIFIED)).toEqual([
      { index: 0, uuid: 'GPU-aa', name: 'NVIDIA GB10', memoryBytes: null, usedBytes: null },
    ]);
  });

  it('is rejected with the line when it is something else', () => {
    expect(textOf(() => parseGpus('0, GPU-aa, NVIDIA H200, much, 0'))).toContain('much');
    expect(() => parseGpus('ERR!')).toThrow(RunError);
  });

  it('names the processes that compute', () => {
    expect(parseGpuProcesses(`${U1}, 4711, /usr/bin/python3, with a comma\n`)).toEqual([
      { gpuUuid: U1, pid: 4711, name: '/usr/bin/python3, with a comma' },
    ]);
    expect(parseGpuProcesses('\n')).toEqual([]);
  });
});

describe('CUDA_VISIBLE_DEVICES', () => {
  it.each([
    ['2,0', [0, 2]],
    [U2, [2]],
    ['GPU-7b', [2]],
    ['1,9,0', [1]],
  ])('%s leaves %j', (value, expected) => {
    expect(visibleGpus(four.gpus, value).map((gpu) => gpu.index)).toEqual(expected);
  });
});

describe('a taken GPU', () => {
  it('is reported with the process that has it, or with the memory of one that is hidden', () => {
    const processes = [{ gpuUuid: U0, pid: 4711, name: 'python3' }];
    expect(describeTakenGpus(four.gpus, processes)).toEqual([
      'GPU 0 (NVIDIA H200) is used by process 4711 (python3)',
      'GPU 1 (NVIDIA H200) is in use: a process that nvidia-smi does not show has 69.6 GiB of its memory',
    ]);
  });

  it('is none when its memory is unknown and no process is on it', () => {
    expect(describeTakenGpus(parseGpus(UNIFIED), [])).toEqual([]);
  });
});

describe('slots on GPUs', () => {
  it('are the GPUs, lowest first, and each is had once', () => {
    const slots = new DeviceSlots(four, null);
    const two = slots.tryAcquire(2, 'gpu');
    const one = slots.tryAcquire(1, 'gpu');
    expect([two, one]).toEqual([
      { devices: [0, 1], threads: 4 },
      { devices: [2], threads: 4 },
    ]);
    expect([slots.size('gpu'), slots.free('gpu'), slots.tryAcquire(2, 'gpu')]).toEqual([4, 1, null]);
    if (two !== null) slots.release(two);
    expect(slots.tryAcquire(3, 'gpu')?.devices).toEqual([0, 1, 3]);
  });

  it('reject GPUs that do not exist, and more processes than GPUs', () => {
    expect(textOf(() => new DeviceSlots(four, [1, 4, 7]))).toBe(
      'launch.devices: there is no GPU 4, 7; usable here: 0 (NVIDIA H200), 1 (NVIDIA H200), 2 (NVIDIA H200), 3 (NVIDIA H200)\n  Name GPUs that exist, or null for all of them.',
    );
    expect(() => new DeviceSlots(four, [0, 1]).tryAcquire(3, 'gpu')).toThrow(ConfigError);
    expect(textOf(() => new DeviceSlots(cpuOnly, [0]))).toContain('this machine has no GPU');
  });

  it('are given back once', () => {
    const slots = new DeviceSlots(four, null);
    const placement = slots.tryAcquire(1, 'gpu');
    if (placement === null) throw new Error('no room');
    slots.release(placement);
    expect(() => slots.release(placement)).toThrow(InternalError);
  });
});

describe('slots on the CPU', () => {
  it('are cores, or shares of them', () => {
    expect(new DeviceSlots(cpuOnly, null).tryAcquire(3, 'cpu')).toEqual({ devices: [], threads: 1 });
    const shares = new DeviceSlots(cpuOnly, null, 2);
    expect(shares.tryAcquire(1, 'cpu')).toEqual({ devices: [], threads: 4 });
    expect(shares.tryAcquire(1, 'cpu')).toEqual({ devices: [], threads: 4 });
    expect(shares.tryAcquire(1, 'cpu')).toBeNull();
  });

  it('are all taken by a run with more processes than there are slots', () => {
    const slots = new DeviceSlots(cpuOnly, null, 2);
    const big = slots.tryAcquire(4, 'cpu');
    expect([big, slots.free('cpu')]).toEqual([{ devices: [], threads: 2 }, 0]);
  });

  it('are had with a share of the memory, by runs of unequal size, and one that is too large has all of it', () => {
    const slots = new DeviceSlots(cpuOnly, null, 8, 64);
    const large = slots.tryAcquire(1, 'cpu', 40);
    expect([large, slots.tryAcquire(1, 'cpu', 30), slots.free('cpu')]).toEqual([{ devices: [], threads: 1 }, null, 7]);
    const rest = slots.tryAcquire(1, 'cpu', 24);
    expect([rest !== null, slots.tryAcquire(1, 'cpu', 1), slots.tryAcquire(1, 'cpu') !== null]).toEqual([
      true,
      null,
      true,
    ]);
    for (const one of [large, rest]) if (one !== null) slots.release(one);
    const tooLarge = slots.tryAcquire(1, 'cpu', 100);
    expect([tooLarge !== null, slots.tryAcquire(1, 'cpu', 1)]).toEqual([true, null]);
    if (tooLarge !== null) slots.release(tooLarge);
    expect(slots.tryAcquire(1, 'cpu', 64)).not.toBeNull();
  });

  it('are all had by a run that leaves too little memory for any other, with the threads of all', () => {
    const slots = new DeviceSlots(cpuOnly, null, 6, 64, 5);
    const large = slots.tryAcquire(1, 'cpu', 60);
    expect([large?.threads, slots.free('cpu'), slots.tryAcquire(1, 'cpu', 5)]).toEqual([8, 0, null]);
    slots.release(large!);
    const small = slots.tryAcquire(1, 'cpu', 5);
    expect([small?.threads, slots.tryAcquire(2, 'cpu', 58)?.threads, slots.free('cpu')]).toEqual([1, 3, 0]);
    const none = new DeviceSlots(cpuOnly, null, 6, 64);
    expect([none.tryAcquire(1, 'cpu', 60)?.threads, none.free('cpu')]).toEqual([1, 5]);
  });

  it('are had beside GPUs, and neither kind waits for the other', () => {
    const slots = new DeviceSlots(four, [0], 2);
    const onCpu = [slots.tryAcquire(1, 'cpu'), slots.tryAcquire(1, 'cpu'), slots.tryAcquire(1, 'cpu')];
    expect(onCpu).toEqual([{ devices: [], threads: 8 }, { devices: [], threads: 8 }, null]);
    expect(slots.tryAcquire(1, 'gpu')).toEqual({ devices: [0], threads: 16 });
    expect([slots.free('cpu'), slots.free('gpu')]).toEqual([0, 0]);
    if (onCpu[0] !== null) slots.release(onCpu[0]);
    expect([slots.free('cpu'), slots.free('gpu')]).toEqual([1, 0]);
  });
});

describe('one run on an empty machine', () => {
  it('has one GPU for each process', () => {
    expect(wholeMachinePlacement({ processes: 'auto', devices: [1, 2] }, four, 'gpu')).toEqual({
      devices: [1, 2],
      threads: 8,
    });
    expect(processCount({ processes: 'auto', devices: null }, four, 'gpu')).toBe(4);
  });

  it('has all cores where it computes on the CPU, whether there are GPUs or not', () => {
    expect(wholeMachinePlacement({ processes: 'auto', devices: null }, cpuOnly, 'cpu')).toEqual({
      devices: [],
      threads: 8,
    });
    expect(wholeMachinePlacement({ processes: 2, devices: null }, cpuOnly, 'cpu')).toEqual({ devices: [], threads: 4 });
    expect(wholeMachinePlacement({ processes: 'auto', devices: null }, four, 'cpu')).toEqual({
      devices: [],
      threads: 16,
    });
    expect(wholeMachinePlacement({ processes: 2, devices: [3] }, four, 'cpu')).toEqual({ devices: [], threads: 8 });
  });

  it('shares its GPUs evenly over ranks', () => {
    const placement = { devices: [1, 2, 5, 7], threads: 1 };
    expect([0, 1].map((rank) => devicesOfRank(placement, rank, 2))).toEqual([
      [1, 2],
      [5, 7],
    ]);
    expect(() => devicesOfRank(placement, 0, 3)).toThrow(ConfigError);
  });
});

describe('asking this machine', () => {
  const on = (...files: string[]): Machine => ({
    platform: 'linux',
    libraries: '/lib',
    exists: (path) => files.includes(path),
  });
  const withGpu = on('/dev/nvidiactl');
  const withoutGpu = on();
  let dir: string;
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'editrl-devices-'));
    vi.stubEnv('PATH', `${dir}:/usr/bin:/bin`);
  });
  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(dir, { recursive: true, force: true });
  });

  function nvidiaSmi(script: string): void {
    writeFileSync(join(dir, 'nvidia-smi'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(dir, 'nvidia-smi'), 0o755);
  }

  const recorded = `case "$1" in
--query-gpu*) cat <<END
${FOUR}END
;; --query-compute-apps*) echo "${U0}, 4711, python3";; esac`;

  it('finds what nvidia-smi lists, and what is taken', () => {
    nvidiaSmi(recorded);
    expect(detectDevices({}, withGpu).gpus).toHaveLength(4);
    expect(detectDevices({ CUDA_VISIBLE_DEVICES: '3' }, withGpu).gpus.map((gpu) => gpu.index)).toEqual([3]);
    expect(textOf(() => detectDevices({ CUDA_VISIBLE_DEVICES: 'MIG-1' }, withGpu))).toMatch(
      /^CUDA_VISIBLE_DEVICES is 'MIG-1', but nvidia-smi does not list it/,
    );
    expect(textOf(() => requireFree([0, 2], {}, withGpu))).toMatch(
      /^launch\.devices: GPU 0 .*4711 \(python3\)\n {2}Wait/,
    );
    expect(() => requireFree([2, 3], {}, withGpu)).not.toThrow();
    expect(() => requireFree([0], { EDITRL_SHARE_GPUS: '1' }, withGpu)).not.toThrow();
  });

  it('has no GPUs where nvidia-smi finds none, or is not asked', () => {
    nvidiaSmi('echo "No devices were found"; exit 6');
    expect(detectDevices({}, withGpu).gpus).toEqual([]);
    nvidiaSmi('exit 1');
    expect(detectDevices({ CUDA_VISIBLE_DEVICES: '' }, withGpu).gpus).toEqual([]);
  });

  it.each([
    [
      'Failed to initialize NVML: Driver/library version mismatch',
      'nvidia-smi does not work: Failed to initialize NVML: Driver/library version mismatch',
    ],
    ['', 'nvidia-smi does not work: it ended with 18'],
  ])('has the problem of an nvidia-smi that says %j, if there is a device', (words, problem) => {
    nvidiaSmi(`echo "${words}"; exit 18`);
    expect(detectDevices({}, withGpu)).toMatchObject({ gpus: [], problem });
    expect(detectDevices({}, withoutGpu)).toEqual({ gpus: [], cpus: availableParallelism() });
  });

  it('has the problem that no entry of PATH leads to nvidia-smi, one that may not be entered too', () => {
    for (const entry of ['/nowhere', '/proc/self/status', `${dir}/${'x'.repeat(300)}`]) {
      vi.stubEnv('PATH', entry);
      expect(detectDevices({}, withGpu)).toMatchObject({ gpus: [], problem: 'nvidia-smi is not on PATH' });
      for (const machine of [withoutGpu, on('/dev/dxg'), { ...withGpu, platform: 'darwin' as const }]) {
        expect(detectDevices({}, machine)).toEqual({ gpus: [], cpus: availableParallelism() });
      }
    }
  });

  it('asks no one if there is no device file', () => {
    nvidiaSmi(`touch ${dir}/asked; echo "0, GPU-a, NVIDIA H200, 143771, 0"`);
    expect(detectDevices({}, withoutGpu).gpus).toEqual([]);
    expect(existsSync(join(dir, 'asked'))).toBe(false);
  });
});
