import { describe, expect, it } from 'vitest';
import { CheckpointError, InternalError } from '../../src/core/errors.js';
import {
  brainsToHalves,
  floatsToHalves,
  floatToHalf,
  halfToFloat,
  halvesToFloats,
  HalfTensor,
  requireHalves,
  writable,
} from '../../src/core/half.js';
import { AdamW } from '../../src/compute/onnx/optimizer.js';
import { mergeLayer } from '../../src/models/adapters/files.js';

const floatOf = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0];

describe('half precision', () => {
  it('has every bfloat16 number between 2^-14 and 65504 as it is, and smaller ones to 2^-25', () => {
    const brains = Uint16Array.from({ length: 2 ** 16 }, (_, bits) => bits);
    const floats = halvesToFloats(brainsToHalves(brains));
    let exact = 0;
    for (const bits of brains) {
      const value = floatOf((bits << 16) >>> 0);
      if (!(Math.abs(value) <= 65504)) continue;
      expect(Math.abs(floats[bits] - value)).toBeLessThanOrEqual(Math.abs(value) < 2 ** -14 ? 2 ** -25 : 0);
      if (floats[bits] === value) exact += 1;
    }
    // 30 exponents of 128 numbers each, with either sign.
    expect(exact).toBeGreaterThan(2 * 30 * 128);
  });

  it('is the nearest to a float', () => {
    const floats = Float32Array.of(1 / 3, -2.5, 1e-8, 65519, 1 + 2 ** -11, 1 + 3 * 2 ** -11);
    const found = halvesToFloats(floatsToHalves(floats));
    expect([...found]).toEqual([0.333251953125, -2.5, 0, 65504, 1, 1 + 2 ** -9]);
  });

  it('widens what it narrows', () => {
    const bits = Uint32Array.of(0);
    const float = new Float32Array(bits.buffer);
    for (let half = 0; half < 0x7c00; half++) {
      float[0] = halfToFloat(half);
      expect(floatToHalf(bits[0])).toBe(half);
    }
  });

  it('widens a tensor again at each reading', () => {
    const tensor = new HalfTensor([2], floatsToHalves(Float32Array.of(1, -0.5)));
    tensor.data.fill(7);
    expect([...tensor.data]).toEqual([1, -0.5]);
  });

  it('has no number beyond 65504, and leaves to others what was not finite before', () => {
    const refuse = (...values: number[]): void => {
      const floats = Float32Array.from(values);
      requireHalves('w', floatsToHalves(floats), (i) => floats[i], 'a file');
    };
    expect(() => refuse(1, -65504)).not.toThrow();
    expect(() => refuse(1, -70000)).toThrow(CheckpointError);
    expect(() => refuse(1, -70000)).toThrow('tensor w contains -70000, beyond 65504');
    expect(() => refuse(NaN)).not.toThrow();
  });
});

it('is not changed in place by what learns or merges', () => {
  const half = new HalfTensor([1, 2], new Uint16Array(2));
  const adapters = new Map([
    ['w.lora_A.weight', { shape: [1, 2], data: Float32Array.of(1, 2) }],
    ['w.lora_B.weight', { shape: [1, 1], data: Float32Array.of(1) }],
  ]);
  const layer = { rank: 1, scale: 1 } as Parameters<typeof mergeLayer>[0];
  const refusal = 'is stored in float16 and cannot be changed in place';
  expect(() => writable('w', half)).toThrow(InternalError);
  expect(() => new AdamW(new Map([['w', half]]), { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0 })).toThrow(refusal);
  expect(() => mergeLayer(layer, 'w', half, adapters)).toThrow(refusal);
  const data = Float32Array.of(3, 4);
  mergeLayer(layer, 'w', { shape: [1, 2], data }, adapters);
  expect([...data]).toEqual([4, 6]);
});
