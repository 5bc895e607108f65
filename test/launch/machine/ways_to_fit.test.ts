import { describe, expect, it } from 'vitest';
import { wayToFit } from '../../../src/launch/machine/ways_to_fit.js';
import type { TrainedSettings } from '../../../src/schema/run.js';

const GIB = 2 ** 30;

interface Sections {
  readonly rollout?: { readonly chunk_groups: number | null };
  readonly optimizer: { readonly gradient_checkpointing: boolean; readonly per_device_batch_size: number };
  readonly policy: { readonly lora: object | null; readonly init: object | null };
}

const whole: Sections = {
  rollout: { chunk_groups: null },
  optimizer: { gradient_checkpointing: false, per_device_batch_size: 4 },
  policy: { lora: null, init: null },
};

/** 40 GiB of weights, or 10 with an adapter, 20 of caches, 8 of activations for a batch of four, of which checkpointing leaves a quarter. */
function estimate(settings: TrainedSettings): number {
  const { rollout, optimizer, policy } = settings as unknown as Sections;
  const kept = (optimizer.gradient_checkpointing ? 0.5 : 2) * optimizer.per_device_batch_size;
  return GIB * ((policy.lora === null ? 40 : 10) + (rollout?.chunk_groups === null ? 20 : 1) + kept);
}

const way = (sections: Sections, free: number): string | null =>
  wayToFit(sections as unknown as TrainedSettings, { bytesOf: estimate, isAllowed: () => true }, free * GIB);

describe('what to set so that a run fits', () => {
  it.each<[number, string]>([
    [50, 'with rollout.chunk_groups=1 it takes 49.0 GiB'],
    [
      45,
      'with rollout.chunk_groups=1 and optimizer.gradient_checkpointing=true and optimizer.per_device_batch_size=1 it takes 41.5 GiB',
    ],
    [40, 'with policy.lora={"rank":16,"alpha":32} it takes 38.0 GiB'],
    [
      12,
      'with policy.lora={"rank":16,"alpha":32} and rollout.chunk_groups=1 and optimizer.gradient_checkpointing=true and optimizer.per_device_batch_size=1 it takes 11.5 GiB',
    ],
  ])('is the least of what is learnt otherwise, with %d GiB', (free, expected) => {
    expect(way(whole, free)).toBe(expected);
  });

  it('holds what an adapter leaves frozen in half precision, before anything else is learnt', () => {
    const engine = { provider: 'cpu', dtype: 'float32' };
    const rollout = { chunk_groups: null, packed_weights: 'frozen' };
    const held = (settings: TrainedSettings): number => {
      const { policy } = settings as unknown as { policy: { engine: { dtype: string }; lora: object | null } };
      return estimate(settings) - (policy.lora !== null && policy.engine.dtype === 'float16' ? 8 * GIB : 0);
    };
    const fits = (lora: object | null, free: number): string | null => {
      const sections = { ...whole, rollout, policy: { lora, init: null, engine } };
      return wayToFit(sections as unknown as TrainedSettings, { bytesOf: held, isAllowed: () => true }, free * GIB);
    };
    const rest =
      'rollout.chunk_groups=1 and optimizer.gradient_checkpointing=true and optimizer.per_device_batch_size=1 it takes 3.5 GiB';
    expect(fits({ rank: 4 }, 30)).toBe('with rollout.chunk_groups=1 it takes 19.0 GiB');
    expect(fits({ rank: 4 }, 5)).toBe(`with policy.engine.dtype=float16 and ${rest}`);
    expect(fits(null, 5)).toBe(`with policy.lora={"rank":16,"alpha":32} and policy.engine.dtype=float16 and ${rest}`);
  });

  it('holds what an image model leaves frozen in half precision, where it leaves anything', () => {
    const fits = (train: unknown): string | null => {
      const policy = { train, lora: null, engine: { provider: 'cpu', dtype: 'float32' } };
      const bytesOf = (settings: TrainedSettings): number =>
        JSON.stringify(settings).includes('"float16"') ? 10 * GIB : 60 * GIB;
      const settings = { optimizer: whole.optimizer, policy } as unknown as TrainedSettings;
      return wayToFit(settings, { bytesOf, isAllowed: () => true }, 20 * GIB);
    };
    for (const train of ['adapter', 'lora']) {
      expect(fits(train)).toBe('with policy.engine.dtype=float16 it takes 10.0 GiB');
    }
    expect(fits('all')).toBeNull();
    expect(fits({ mm_vision: false, mm_mlp: true, mm_llm: true })).toBeNull();
  });

  it('is one setting alone where that does', () => {
    expect(way({ ...whole, rollout: { chunk_groups: 1 } }, 43)).toBe(
      'with optimizer.gradient_checkpointing=true it takes 43.0 GiB',
    );
    const { optimizer, policy } = whole;
    expect(way({ optimizer: { ...optimizer, gradient_checkpointing: true }, policy }, 41.5)).toBe(
      'with optimizer.per_device_batch_size=1 it takes 41.5 GiB',
    );
  });

  it('is nothing where nothing does, or no adapter can be trained', () => {
    expect(way(whole, 11)).toBeNull();
    expect(way({ ...whole, policy: { lora: null, init: {} } }, 40)).toBeNull();
    expect(way({ ...whole, policy: { lora: { rank: 4 }, init: null } }, 8)).toBeNull();
    expect(
      wayToFit(whole as unknown as TrainedSettings, { bytesOf: () => null, isAllowed: () => true }, 1e12),
    ).toBeNull();
  });

  describe('with another program', () => {
    const policy = { lora: null, init: null, model: '/models/m', tokenizer: null, trainer: { type: 'onnx' } };
    const served = {
      ...whole,
      rollout: { chunk_groups: null, engine: null, packed_weights: 'frozen' },
      policy: { ...policy, engine: { dtype: 'float32' } },
      launch: { processes: 2 },
    };
    /** A vLLM has the caches, and a training server all but a GiB. */
    const bytesOf = (settings: TrainedSettings): number => {
      const { rollout, policy } = settings as unknown as {
        rollout: { engine?: object | null };
        policy: { trainer?: { type: string } };
      };
      if (policy.trainer?.type === 'tinker') return GIB;
      return estimate(settings) - ((rollout.engine ?? null) === null ? 0 : GIB);
    };
    const ways = (
      free: number,
      sections: object = served,
      isAllowed: (settings: TrainedSettings) => boolean = () => true,
    ) => wayToFit(sections as TrainedSettings, { bytesOf, isAllowed }, free * GIB)?.split('; or ') ?? [];
    const vllm = 'with rollout.engine={"type":"vllm","base_url":"http://HOST:8000/v1"}';
    const tinker =
      'with policy.trainer={"type":"tinker","base_url":"http://HOST:8000","base_model":"NAME"} and policy.tokenizer=/models/m and policy.model=null and launch.processes=1 it takes 1.0 GiB, and the training server has the policy';

    it('names a vLLM and a training server beside what this one can do, each with what is left here', () => {
      expect(ways(68)).toEqual([
        'with rollout.chunk_groups=1 it takes 49.0 GiB',
        `${vllm} it takes 67.0 GiB, and vLLM has its own`,
        tinker,
      ]);
      const alone = `policy.lora={"rank":16,"alpha":32} and rollout.chunk_groups=1 and optimizer.gradient_checkpointing=true and optimizer.per_device_batch_size=1 it takes 10.5 GiB`;
      expect(ways(11)).toEqual([`${vllm} and ${alone}, and vLLM has its own`, tinker]);
      expect(ways(2)).toEqual([tinker]);
      expect(ways(0.5)).toEqual([]);
    });

    it('sets what a training server leaves no room for', () => {
      const half = {
        ...served,
        policy: { ...served.policy, lora: { rank: 4 }, tokenizer: '/t', engine: { dtype: 'float16' } },
      };
      expect(ways(2, { ...half, launch: { processes: 1 }, rollout: { ...served.rollout, engine: {} } })).toEqual([
        'with policy.trainer={"type":"tinker","base_url":"http://HOST:8000","base_model":"NAME"} and policy.model=null and policy.lora=null and policy.engine.dtype=float32 and rollout.engine=null it takes 1.0 GiB, and the training server has the policy',
      ]);
      const hub = { hub: 'a/b', revision: 'main' };
      const [way] = ways(2, { ...served, policy: { ...served.policy, model: hub } });
      expect(way).toContain(' and policy.tokenizer={"hub":"a/b","revision":"main"} and policy.model=null ');
    });

    it('names none that the recipe does not allow, that is there already, or that random weights leave out', () => {
      const isServed = (settings: TrainedSettings): boolean => JSON.stringify(settings).includes('"tinker"');
      const isSampled = (settings: TrainedSettings): boolean => JSON.stringify(settings).includes('"vllm"');
      expect(ways(2, served, (settings) => !isServed(settings))).toEqual([]);
      expect(ways(11, served, (settings) => !isSampled(settings))).toEqual([tinker]);
      expect(ways(2, { ...served, policy: { ...served.policy, trainer: undefined } })).toEqual([]);
      expect(ways(2, { ...served, policy: { ...served.policy, trainer: { type: 'tinker' } } })).not.toContain(tinker);
      expect(ways(68, { ...served, policy: { ...served.policy, model: null, init: {} } })).toEqual([
        'with rollout.chunk_groups=1 it takes 49.0 GiB',
      ]);
      const { chunk_groups, packed_weights } = served.rollout;
      expect(ways(68, { ...served, rollout: { chunk_groups, packed_weights } })).toEqual([
        'with rollout.chunk_groups=1 it takes 49.0 GiB',
        tinker,
      ]);
    });
  });
});
