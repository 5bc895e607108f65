import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../src/core/errors.js';
import {
  encodeSafetensors,
  readSafetensors,
  readSafetensorsIndex,
  safetensorsPieces,
  type FloatTensor,
} from '../../src/core/safetensors.js';
import { testFolder } from '../support/folder.js';

const folder = testFolder('safetensors');
const backing = Float32Array.from({ length: 40 }, (_, i) => Math.fround(Math.sin(i)));
const tensors = new Map<string, FloatTensor>([
  ['whole', { shape: [3, 4], data: Float32Array.from({ length: 12 }, (_, i) => i / 7) }],
  ['part of a buffer', { shape: [9], data: backing.subarray(5, 14) }],
  ['empty', { shape: [0], data: new Float32Array(0) }],
  ['last', { shape: [1], data: Float32Array.of(-0) }],
]);

describe('a safetensors file', () => {
  it('is the header and then the tensors, of which nothing is copied', () => {
    const [head, ...data] = safetensorsPieces(tensors, { format: 'pt' });
    expect((8 + Number(new DataView(head.buffer).getBigUint64(0, true))) % 8).toBe(0);
    expect(data.map(({ buffer }) => buffer)).toEqual([...tensors.values()].map((tensor) => tensor.data.buffer));
    expect(data[1].byteOffset).toBe(20);
    expect(Buffer.concat([head, ...data])).toEqual(Buffer.from(encodeSafetensors(tensors, { format: 'pt' })));
  });

  it.each([1, 3, 8, 64, 1000])('is read alike %i bytes at a time', (pieceBytes) => {
    const path = join(folder, 'read.safetensors');
    writeFileSync(path, encodeSafetensors(tensors, { format: 'pt' }));
    expect(readSafetensors(path, undefined, pieceBytes)).toEqual(tensors);
    expect(readSafetensors(path, ['last'], pieceBytes)).toEqual(new Map([['last', tensors.get('last')]]));
    expect(readSafetensorsIndex(path).metadata).toEqual({ format: 'pt' });
  });

  it('says where one ends that was cut', () => {
    const path = join(folder, 'cut.safetensors');
    const bytes = encodeSafetensors(tensors);
    writeFileSync(path, bytes.subarray(0, bytes.length - 2));
    expect(() => readSafetensors(path, undefined, 16)).toThrow(CheckpointError);
    expect(() => readSafetensors(path, undefined, 16)).toThrow(`it ends after ${bytes.length - 2} bytes`);
  });
});
