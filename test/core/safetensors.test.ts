import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../src/core/errors.js';
import {
  checkSafetensors,
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

/** A file of such a header, and enough data. */
function withHeader(header: unknown): string {
  const path = join(folder, 'header.safetensors');
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, Buffer.alloc(64)]));
  return path;
}

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
    expect(readSafetensors(path, undefined, { pieceBytes })).toEqual(tensors);
    expect(readSafetensors(path, ['last'], { pieceBytes })).toEqual(new Map([['last', tensors.get('last')]]));
    expect(readSafetensorsIndex(path).metadata).toEqual({ format: 'pt' });
  });

  it('is named if it is a Git LFS pointer', () => {
    const file = join(folder, 'pointer.safetensors');
    writeFileSync(file, `version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 12\n`);
    expect(() => readSafetensorsIndex(file)).toThrow(/Git LFS pointer/);
    expect(() => readSafetensorsIndex(file)).toThrow(CheckpointError);
  });

  it('says where one ends that was cut', () => {
    const path = join(folder, 'cut.safetensors');
    const bytes = encodeSafetensors(tensors);
    writeFileSync(path, bytes.subarray(0, bytes.length - 2));
    expect(() => readSafetensors(path, undefined, { pieceBytes: 16 })).toThrow(CheckpointError);
    expect(() => readSafetensors(path, undefined, { pieceBytes: 16 })).toThrow(
      `it ends after ${bytes.length - 2} bytes`,
    );
  });

  it.each<[string, unknown, string]>([
    ['is a list', [1], 'its header does not name tensors'],
    ['is null', null, 'its header does not name tensors'],
    ['says nothing of a tensor', { w: null }, 'its header does not locate w'],
    ['names no shape', { w: { dtype: 'F32', data_offsets: [0, 16] } }, 'does not locate w'],
    ['names no place', { w: { dtype: 'F32', shape: [4], data_offsets: null } }, 'does not locate w'],
    ['names half a place', { w: { dtype: 'F32', shape: [4], data_offsets: [0] } }, 'does not locate w'],
    ['names a place in words', { w: { dtype: 'F32', shape: [4], data_offsets: ['0', '16'] } }, 'locate w'],
    ['names a place before the data', { w: { dtype: 'F32', shape: [4], data_offsets: [-16, 0] } }, 'locate w'],
    ['names an end before the start', { w: { dtype: 'F32', shape: [0], data_offsets: [16, 0] } }, 'locate w'],
    ['names a wrong size', { w: { dtype: 'F32', shape: [4], data_offsets: [0, 8] } }, 'w is F32 of shape [4], and has 8 bytes'], // prettier-ignore
    ['is of another format', { w: { dtype: 'BF16', shape: [4], data_offsets: [0, 16] } }, 'w is BF16 of shape [4], and has 16 bytes'], // prettier-ignore
  ])('is rejected where its header %s', (_, header, said) => {
    const path = withHeader(header);
    for (const read of [() => readSafetensors(path), () => checkSafetensors(path, ['w'])]) {
      expect(read).toThrow(CheckpointError);
      expect(read).toThrow(said);
    }
  });

  it('may hold tensors of other formats, which are rejected when they are read as weights', () => {
    const path = withHeader({ w: { dtype: 'F8_E4M3', shape: [4], data_offsets: [0, 4] } });
    expect(readSafetensorsIndex(path).entries.get('w')?.length).toBe(4);
    expect(() => checkSafetensors(path, ['w'])).toThrow('tensor w has dtype F8_E4M3, weights must be F32, F16 or BF16');
  });
});

describe('a hostile header', () => {
  /** A file whose header names tensors of one byte each at these places, before so many bytes. */
  function file(places: Readonly<Record<string, readonly [number, number]>>, bytes: number): string {
    const header = Object.entries(places).map(([name, [from, to]]) => {
      return [name, { dtype: 'U8', shape: [to - from], data_offsets: [from, to] }] as const;
    });
    const text = JSON.stringify(Object.fromEntries(header));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    const path = join(folder, `hostile-${bytes}-${Object.keys(places).join('-')}.safetensors`);
    writeFileSync(path, Buffer.concat([length, Buffer.from(text), Buffer.alloc(bytes)]));
    return path;
  }

  it('whose tensors are in the same bytes is rejected', () => {
    const path = file({ b: [2, 6], a: [0, 3] }, 6);
    for (const read of [
      () => readSafetensors(path),
      () => readSafetensorsIndex(path),
      () => checkSafetensors(path, []),
    ]) {
      expect(read).toThrow('not a whole safetensors file: a and b overlap');
    }
    // An empty tensor lies nowhere.
    expect([...readSafetensorsIndex(file({ b: [2, 6], none: [3, 3], a: [0, 2] }, 6)).entries.keys()]).toHaveLength(3);
  });

  it('that claims more than the file has makes no room for it', () => {
    const path = file({ a: [0, 2 ** 45] }, 6);
    expect(() => readSafetensors(path)).toThrow(/it ends after \d+ bytes, \d+ are needed/);
  });
});
