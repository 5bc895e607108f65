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
  wayToFit(sections as unknown as TrainedSettings, estimate, free * GIB);

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
      return wayToFit(sections as unknown as TrainedSettings, held, free * GIB);
    };
    const rest =
      'rollout.chunk_groups=1 and optimizer.gradient_checkpointing=true and optimizer.per_device_batch_size=1 it takes 3.5 GiB';
    expect(fits({ rank: 4 }, 30)).toBe('with rollout.chunk_groups=1 it takes 19.0 GiB');
    expect(fits({ rank: 4 }, 5)).toBe(`with policy.engine.dtype=float16 and ${rest}`);
    expect(fits(null, 5)).toBe(`with policy.lora={"rank":16,"alpha":32} and policy.engine.dtype=float16 and ${rest}`);
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
    expect(wayToFit(whole as unknown as TrainedSettings, () => null, 1e12)).toBeNull();
  });
});
