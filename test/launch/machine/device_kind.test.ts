import { describe, expect, it } from 'vitest';
import type { RunSettings } from '../../../src/config/schema/run.js';
import {
  deviceKind,
  processCount,
  processesOf,
  runDevices,
  serverDevices,
  whyFewerProcesses,
} from '../../../src/launch/machine/devices.js';

const gpus = [{ index: 0, uuid: 'GPU-0', name: 'one', memoryBytes: null, usedBytes: null }];

/** As much of a run's settings as its devices depend on. */
function run(policy: string, environment: string, devices: readonly number[] | null = null): RunSettings {
  const part = (provider: string): unknown => ({ engine: { provider } });
  const task = 'image_edit_tokens';
  return {
    task,
    policy: part(policy),
    environment: part(environment),
    launch: { devices, command: null },
  } as unknown as RunSettings;
}

const external = (devices: readonly number[] | null): RunSettings =>
  ({ task: 'external', launch: { devices, command: ['train'] } }) as unknown as RunSettings;

describe('a run', () => {
  it.each([
    ['cpu', 'cpu', 'cuda', 'cpu'],
    ['cuda', 'cpu', 'cpu', 'gpu'],
    ['cpu', 'cuda', 'cpu', 'gpu'],
    ['webgpu', 'cpu', 'cpu', 'gpu'],
    ['auto', 'auto', 'cuda', 'gpu'],
    ['auto', 'auto', 'cpu', 'cpu'],
  ] as const)('of providers %s and %s, auto being %s, takes slots of the %s', (policy, environment, auto, kind) => {
    expect(deviceKind(run(policy, environment), { gpus }, () => auto)).toBe(kind);
    const tokenizer = { ...run('cuda', environment), task: 'image_tokenizer' } as RunSettings;
    const alone = environment === 'auto' ? auto : environment;
    expect(deviceKind(tokenizer, { gpus }, () => auto)).toBe(alone === 'cpu' ? 'cpu' : 'gpu');
  });

  it('takes the CPU if there is no GPU, or if it may have none', () => {
    expect(deviceKind(run('cuda', 'cuda'), { gpus: [] })).toBe('cpu');
    expect(deviceKind(run('cuda', 'cuda', []), { gpus })).toBe('cpu');
  });

  it('of another trainer takes GPUs, unless its settings exclude them', () => {
    expect(deviceKind(external(null), { gpus })).toBe('gpu');
    expect(deviceKind(external([0]), { gpus })).toBe('gpu');
    expect(deviceKind(external([]), { gpus })).toBe('cpu');
    const { launch, ...ours } = run('cpu', 'cpu');
    const theirs = { ...ours, launch: { ...launch, command: ['train'] } } as RunSettings;
    expect(deviceKind(theirs, { gpus })).toBe('gpu');
  });
});

describe('the processes of a run', () => {
  const asked = (processes: number, episodes: number, command: readonly string[] | null = null): number => {
    const settings = {
      task: 'image_edit_tokens',
      algorithm: { type: 'grpo', minibatches: 2 },
      rollout: { episodes_per_iteration: episodes },
      optimizer: { per_device_batch_size: 8 },
      launch: { devices: null, processes, command },
    } as unknown as RunSettings;
    return processesOf(settings, { gpus }, 'cpu');
  };

  it('are those that are asked for, but no more than a step has micro-batches', () => {
    expect([asked(2, 64), asked(4, 64), asked(8, 64), asked(8, 16)]).toEqual([2, 4, 4, 1]);
  });

  it('explain why they are fewer than asked for', () => {
    const settings = (processes: number): RunSettings =>
      ({
        task: 'image_edit_tokens',
        algorithm: { type: 'grpo', minibatches: 2 },
        rollout: { episodes_per_iteration: 16 },
        optimizer: { per_device_batch_size: 8 },
        launch: { devices: null, processes, command: null },
      }) as unknown as RunSettings;
    expect(whyFewerProcesses(settings(8), { gpus }, 'cpu')).toMatch(
      /^starting 1 of 8 processes, because a step has 1 micro-batch;/,
    );
    expect(whyFewerProcesses(settings(1), { gpus }, 'cpu')).toBeNull();
  });

  it("are another trainer's own business", () => {
    expect(asked(8, 16, ['train'])).toBe(8);
  });
});

describe('a server that is started with a run', () => {
  const four = [0, 1, 2, 3].map((index) => ({
    index,
    uuid: `GPU-${index}`,
    name: 'one',
    memoryBytes: null,
    usedBytes: null,
  }));
  const launch = { devices: null, processes: 'auto', command: null } as const;
  const sampled = (devices: readonly number[] | null, allowed: readonly number[] | null = null): RunSettings =>
    ({
      task: 'text_answers',
      policy: { lora: { r: 8 }, model: 'base', model_context_size: 64, engine: { provider: 'cuda' } },
      rollout: { engine: { type: 'vllm', base_url: null, serve: { devices } } },
      launch: { ...launch, devices: allowed },
    }) as unknown as RunSettings;

  it('has GPUs of its own, which the run leaves to it', () => {
    const own = runDevices(sampled([1, 3]), { gpus: four });
    expect(own.gpus.map(({ index }) => index)).toEqual([0, 2]);
    expect(processCount(launch, own, 'gpu')).toBe(2);
    expect(runDevices(sampled(null), { gpus: four }).gpus).toHaveLength(4);
    expect(serverDevices(sampled([1, 3]), { gpus: four }, [0])).toEqual([1, 3]);
  });

  it('is given one that the run may use and does not, else shares its first', () => {
    expect(serverDevices(sampled(null), { gpus: four }, [0])).toEqual([1]);
    expect(serverDevices(sampled(null, [0, 3]), { gpus: four }, [0])).toEqual([3]);
    expect(serverDevices(sampled(null), { gpus: four }, [0, 1, 2, 3])).toEqual([0]);
    expect(serverDevices(sampled(null), { gpus: four }, [])).toBeNull();
    const none = { ...sampled(null), rollout: { engine: null } } as unknown as RunSettings;
    expect(serverDevices(none, { gpus: four }, [0])).toBeNull();
  });

  const trained = (
    devices: readonly number[] | null,
    allowed: readonly number[] | null = null,
    serve: object | null = { devices },
  ): RunSettings =>
    ({
      task: 'text_answers',
      policy: { trainer: { type: 'tinker', serve }, engine: { provider: 'cuda' } },
      rollout: { engine: null },
      launch: { ...launch, devices: allowed },
    }) as unknown as RunSettings;

  it('that trains has those that it names, else those of the run, else the first', () => {
    expect(serverDevices(trained([1, 3]), { gpus: four }, [0])).toEqual([1, 3]);
    expect(serverDevices(trained(null), { gpus: four }, [2])).toEqual([2]);
    expect(serverDevices(trained(null), { gpus: four }, [])).toEqual([0]);
    expect(serverDevices(trained(null, [2, 3]), { gpus: four }, [])).toEqual([2]);
    expect(serverDevices(trained(null, []), { gpus: four }, [])).toBeNull();
    expect(serverDevices(trained(null), { gpus: [] }, [])).toBeNull();
    expect(serverDevices(trained(null, null, null), { gpus: four }, [0])).toBeNull();
  });

  it('that trains may have all GPUs: the run then computes on the CPU', () => {
    expect(runDevices(trained([0, 1]), { gpus: four }).gpus.map(({ index }) => index)).toEqual([2, 3]);
    expect(deviceKind(trained([0, 1]), { gpus: four })).toBe('gpu');
    expect(deviceKind(trained([0, 1, 2, 3]), { gpus: four })).toBe('cpu');
  });

  it('that trains on the GPU that the run is given has the run take one, wherever the run itself computes', () => {
    const onCpu = (serve: object): RunSettings => {
      const { policy, ...rest } = trained(null, null, { devices: null, mode: null, ...serve }) as unknown as {
        policy: object;
      };
      return { ...rest, policy: { ...policy, engine: { provider: 'cpu' } } } as unknown as RunSettings;
    };
    expect(deviceKind(onCpu({}), { gpus: four })).toBe('gpu');
    expect(deviceKind(onCpu({ mode: 'jax' }), { gpus: four })).toBe('cpu');
    expect(deviceKind(onCpu({ devices: [3] }), { gpus: four })).toBe('cpu');
    expect(deviceKind(onCpu({}), { gpus: [] })).toBe('cpu');
  });
});
