import { describe, expect, it } from 'vitest';
import { checkPlacement, describeParts, placeParts, deviceIndices } from '../../../src/launch/machine/placement.js';
import { placedVerdict } from '../../../src/launch/machine/memory.js';
import { launch } from '../../../src/config/schema/launch.js';

const gpus = (...indices: number[]) =>
  indices.map((index) => ({ index, name: `card ${index}`, uuid: `GPU-${index}`, memoryBytes: 100, usedBytes: 0 }));
const settings = (placement: object, more: object = {}) => launch.parse({ placement, ...more });
const wanted = (placement: object) => settings(placement).placement!;
const apart = wanted({ policy: 0, image: 1, reward: 2 });

describe('the parts of a run', () => {
  it('are where they are placed, counted by the GPUs that the process sees', () => {
    const placed = placeParts(wanted({ policy: 3, image: 1, reward: 3 }), gpus(0, 1, 2, 3));
    expect(placed).toEqual({ devices: { policy: 3, image: 1, reward: 3 }, gpus: [1, 3], note: null });
    expect(deviceIndices(placed)).toEqual({ policy: 1, image: 0, reward: 1 });
  });

  it('are beside the policy by default', () => {
    expect(placeParts(wanted({ policy: 1 }), gpus(0, 1))).toMatchObject({
      devices: { policy: 1, image: 1, reward: 1 },
      note: null,
    });
  });

  it('share the GPUs of a machine with fewer, and that is reported', () => {
    expect(placeParts(apart, gpus(4, 5))).toEqual({
      devices: { policy: 4, image: 5, reward: 4 },
      gpus: [4, 5],
      note: 'launch.placement names 3 GPUs (0, 1, 2), and the run has 2: policy on GPU 4, image on GPU 5, reward on GPU 4',
    });
    const none = placeParts(apart, []);
    expect(none.note).toBe(
      'launch.placement names 3 GPUs (0, 1, 2), and the run has none: policy on the CPU, image on the CPU, reward on the CPU',
    );
    expect(deviceIndices(none)).toEqual({});
    expect(describeParts(none.devices)).toBe('policy on the CPU, image on the CPU, reward on the CPU');
  });

  it('are rejected on a GPU that does not exist beside enough others', () => {
    expect(() => placeParts(wanted({ policy: 0, image: 7 }), gpus(0, 1))).toThrow(
      'image is placed on GPU 7, which does not exist or is not allowed; usable: 0 (card 0), 1 (card 1)',
    );
  });

  it('are those of one process', () => {
    expect(() => checkPlacement(settings({ policy: 0 }, { processes: 2 }))).toThrow('launch.processes 2; allowed: 1');
    expect(() => checkPlacement(settings({ policy: 0 }))).not.toThrow();
  });
});

describe('whether placed parts fit', () => {
  const machine = { free: 1e6, total: 1e6 };
  const bytes = { policy: 60, image: 50, reward: 0 };
  const verdictOn = (placement: object, limit = 0.85) =>
    placedVerdict(bytes, placeParts(wanted(placement), gpus(0, 1, 2)), limit, gpus(0, 1, 2), machine);

  it('is asked of each GPU, up to the limit', () => {
    expect(verdictOn({ policy: 0, image: 1, reward: 2 })).toMatchObject({
      fits: true,
      neededBytes: 60,
      totalBytes: 85,
    });
    const together = verdictOn({ policy: 1 });
    expect(together).toMatchObject({ fits: false, neverFits: false, neededBytes: 110, freeBytes: 85 });
    expect(together.advice).toContain('policy and image and reward on GPU 1: place them apart');
    expect(verdictOn({ policy: 0, image: 1 }, 0.5)).toMatchObject({ fits: false, freeBytes: 50 });
  });

  it('is asked of the machine if there is no GPU', () => {
    expect(placedVerdict(bytes, placeParts(apart, []), 0.85, [], { free: 100, total: 200 })).toMatchObject({
      fits: false,
      neededBytes: 110,
      freeBytes: 100,
    });
  });
});
