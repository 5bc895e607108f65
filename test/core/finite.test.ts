import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../src/core/errors.js';
import { notFiniteIn, requireFinite } from '../../src/core/finite.js';
import { floatsToHalves, HalfTensor } from '../../src/core/half.js';
import {
  encodeSafetensors,
  toStoredBytes,
  storedSafetensors,
  type FloatTensor,
  type WrittenDtype,
} from '../../src/core/safetensors.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('finite');

function file(bytes: Uint8Array): string {
  const path = join(newFolder(), 'w.safetensors');
  writeFileSync(path, bytes);
  return path;
}

describe('numbers of a tensor', () => {
  it.each([
    ['NaN', NaN],
    ['Infinity', Infinity],
    ['-Infinity', -Infinity],
  ])('that are %s are found, with the place of the first', (text, value) => {
    const tensors: [string, FloatTensor][] = [
      ['fine', { shape: [2], data: Float32Array.of(-3.4e38, 1e-45) }],
      ['wrong', { shape: [3], data: Float32Array.of(0, value, NaN) }],
    ];
    const message = `tensor wrong contains a number that is not finite (${text}, number 2 of 3)`;
    expect(() => requireFinite(tensors, 'some/file')).toThrow(
      expect.objectContaining({ message, where: 'some/file', code: 'checkpoint' }),
    );
    expect(notFiniteIn(file(encodeSafetensors(new Map(tensors))))).toBe(message);
    const halves = new HalfTensor([3], floatsToHalves(Float32Array.of(65504, value, NaN)));
    expect(() => requireFinite([['wrong', halves]])).toThrow(message);
    expect(() =>
      requireFinite([['fine', new HalfTensor([2], floatsToHalves(Float32Array.of(65504, -0)))]]),
    ).not.toThrow();
  });

  it.each<[WrittenDtype, number]>([
    ['F32', 3.4e38],
    ['BF16', 3.3e38],
    ['F16', 65504],
  ])('are looked at in %s, up to the largest', (dtype, largest) => {
    const of = (...values: number[]): Buffer => {
      const data = Float32Array.from(values);
      return storedSafetensors(new Map([['w', { dtype, shape: [values.length], bytes: toStoredBytes(data, dtype) }]]));
    };
    expect(notFiniteIn(file(of(largest, -largest, 0)))).toBeNull();
    expect(notFiniteIn(file(of(largest, -Infinity)))).toBe(
      'tensor w contains a number that is not finite (-Infinity, number 2 of 2)',
    );
  });

  it('are found beyond the first piece that is read', () => {
    const data = new Float32Array(2 * 1024 * 1024 + 7);
    data[data.length - 1] = NaN;
    expect(notFiniteIn(file(encodeSafetensors(new Map([['w', { shape: [data.length], data }]]))))).toContain(
      `number ${data.length} of ${data.length}`,
    );
  });

  it('have to be finite only where they are fractions', () => {
    const bytes = Buffer.alloc(8, 0xff);
    expect(notFiniteIn(file(storedSafetensors(new Map([['ids', { dtype: 'I64', shape: [1], bytes }]]))))).toBeNull();
  });

  it('that are cut off raise', () => {
    const whole = encodeSafetensors(new Map([['w', { shape: [2], data: new Float32Array(2) }]]));
    expect(() => notFiniteIn(file(whole.subarray(0, whole.length - 1)))).toThrow(CheckpointError);
  });
});
