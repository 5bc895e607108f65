import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zipSync } from 'fflate';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { decodeTorchSample, openEditDataset } from '../../src/data/edits.js';
import { readTorchFile, SavedArray } from '../../src/data/torch_file.js';

const folder = join(import.meta.dirname, 'fixtures', 'torch');
const bytesOf = (name: string): Uint8Array => readFileSync(join(folder, `${name}.pth`));
const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as Record<string, unknown>;

/** As the script that made the fixtures writes what Python reads. */
function plain(value: unknown): unknown {
  if (value instanceof SavedArray) return { dtype: value.dtype, shape: value.shape, values: value.values };
  if (value instanceof Map) {
    return { keys: [...(value as Map<unknown, unknown>)].map((pair) => pair.map(plain)) };
  }
  if (value instanceof Uint8Array) return { bytes: [...value] };
  if (Array.isArray(value)) return (value as unknown[]).map(plain);
  if (typeof value === 'bigint') return { big: String(value) };
  return typeof value === 'number' && Math.abs(value) > 2 ** 53 && Number.isInteger(value)
    ? { big: String(BigInt(value)) }
    : value;
}

describe('files of torch.save', () => {
  const names = readdirSync(folder).flatMap((name) => /^(.*)\.pth$/.exec(name)?.[1] ?? []);
  it.each(names)('%s holds what Python reads of it', (name) => {
    expect(plain(readTorchFile(bytesOf(name), name))).toEqual(expected[name.split('_')[0]]);
  });

  it('reads every dtype, view and container that there is an example of', () => {
    expect(names).toHaveLength(5);
  });
});

describe('hostile files', () => {
  afterAll(() => rmSync('/tmp/executed', { force: true }));

  it.each([
    ['os_system', '"posix.system"'],
    ['os_system_4', 'its protocol is not 2'],
    ['eval', '"__builtin__.eval"'],
    ['getattr', '"__builtin__.getattr"'],
    ['torch_load', '"torch.serialization.load"'],
    ['class', '"__main__.Plain"'],
    ['own_array', '"__main__.Own"'],
    ['nested_call', 'fills a container'],
    ['mentioned_and_called', 'calls something other than a function'],
    ['objects', 'elements of "O8"'],
    ['inst', 'its protocol is not 2'],
    ['extension', 'an instruction is not supported'],
    ['protocol_9', 'its protocol is not 2'],
    ['long_claims', 'an instruction is not supported'],
    ['no_stop', 'truncated: 1 bytes'],
    ['empty_stack', 'an empty stack'],
    ['no_mark', 'a missing mark'],
    ['not_remembered', 'has not stored'],
    ['open_line', 'may not use "."'],
    ['path', 'storage "../../../etc/passwd" is not in it'],
    ['no_storage', 'storage "5" is not in it'],
    ['short_storage', '100 elements of int64, but has 64 bytes'],
    ['beyond', 'ends at element 11 of a storage of 8'],
    ['negative_stride', 'no storage and sizes'],
    ['huge_shape', 'more elements than any sample'],
    ['huge_together', 'more elements than any sample'],
    ['odd_storage', '"torch.ComplexFloatStorage"'],
    ['uint16', '"torch._utils._rebuild_tensor_v3"'],
    ['big_numbers', '1152921504606846976 is too large'],
    ['compressed', 'is compressed'],
    ['no_pickle', 'one data.pkl'],
    ['two_roots', 'one data.pkl'],
    ['cut', 'invalid zip data'],
    ['cut_end', 'invalid zip data'],
    ['empty', 'invalid zip data'],
    ['text', 'invalid zip data'],
    ['before_1_6', 'a bare pickle'],
  ])('%s is rejected', (name, found) => {
    const file = `hostile/${name}`;
    let error: unknown = null;
    try {
      readTorchFile(bytesOf(file), file);
    } catch (cause) {
      error = cause;
    }
    expect(error).toBeInstanceOf(DataError);
    expect(error).toMatchObject({
      message: expect.stringContaining(found) as string,
      where: file,
    });
  });

  it('each is read, and none has executed anything', () => {
    expect(readdirSync(join(folder, 'hostile'))).toHaveLength(37);
    expect(existsSync('/tmp/executed')).toBe(false);
  });

  it('a text that is not UTF-8 is rejected', () => {
    const pickle = Buffer.from('\x80\x02X\x01\x00\x00\x00\xe4.', 'latin1');
    expect(() => readTorchFile(zipSync({ 'x/data.pkl': pickle }, { level: 0 }), 'x')).toThrow(/not UTF-8/);
  });

  it('entries that overlap, or are many, do not grow when they are read', () => {
    const entries = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`x/data/${i}`, new Uint8Array(100)]));
    const whole = Buffer.from(zipSync({ 'x/data.pkl': Uint8Array.of(0x80, 2, 0x4e, 0x2e), ...entries }, { level: 0 }));
    expect(readTorchFile(whole, 'x')).toBeNull();
    // Every entry of the directory is said to have the size of the whole file.
    for (let at = whole.indexOf('PK\x01\x02'); at >= 0; at = whole.indexOf('PK\x01\x02', at + 4)) {
      whole.writeUInt32LE(whole.length, at + 20);
      whole.writeUInt32LE(whole.length, at + 24);
    }
    expect(() => readTorchFile(whole, 'x')).toThrow('its entries are larger than the file');
    // A directory that is said to have more entries than there is room for.
    const end = whole.lastIndexOf('PK\x05\x06');
    whole.writeUInt16LE(60_000, end + 8);
    whole.fill(0, whole.indexOf('PK\x01\x02') + 46, end);
    expect(() => readTorchFile(whole, 'x')).toThrow(DataError);
  });

  it('every file with a byte changed or cut off is read or refused, and nothing else', () => {
    for (const name of ['earl', 'tensors', 'mixed']) {
      const whole = bytesOf(name);
      for (let at = 0; at < whole.length; at += 11) {
        const changed = Uint8Array.from(whole);
        changed[at] ^= 1 << (at % 8);
        for (const bytes of [changed, whole.subarray(0, at)]) {
          try {
            readTorchFile(bytes, name);
          } catch (error) {
            expect(error, `${name} at byte ${at}`).toBeInstanceOf(DataError);
          }
        }
      }
    }
  });
});

describe("EARL's samples", () => {
  const root = mkdtempSync(join(tmpdir(), 'editrl-earl-'));
  afterAll(() => rmSync(root, { recursive: true }));
  beforeAll(() => {
    mkdirSync(join(root, 'train', 'list'), { recursive: true });
    const list = { prefix: '/network/scratch/feature', path_list: ['one.pth', 'two.pt'] };
    writeFileSync(join(root, 'train', 'list', 'tokenized_datalist.json'), JSON.stringify(list));
    writeFileSync(join(root, 'train', 'one.pth'), bytesOf('earl'));
    writeFileSync(join(root, 'train', 'two.pt'), bytesOf('earl_numpy_1'));
  });

  it('stand beside .npz in a dataset', () => {
    const dataset = openEditDataset(join(root, 'train'));
    const sample = {
      id: 'one.pth',
      instruction: 'Add a \u{1f600} to the sky',
      source: { height: 2, width: 3, codes: Int32Array.of(0, 1000, 2000, 3000, 4000, 5000) },
      sourcePng: null,
      target: { height: 2, width: 3, codes: Int32Array.of(3000, 4000, 5000, 0, 1000, 2000) },
      targetPng: null,
      rationale: 'thinking: the sky is [1, 2] conditioning_information: é',
    };
    expect(dataset.read(0)).toEqual(sample);
    expect(dataset.read(1)).toEqual({ ...sample, id: 'two.pt' });
  });

  it('say which field is missing or wrong', () => {
    expect(() => decodeTorchSample(bytesOf('tensors'), 'x', 'x.pth')).toThrow(
      "the field 'instruction' is missing; allowed: a text",
    );
    const renamed = (from: string, to: string): Uint8Array =>
      Buffer.from(Buffer.from(bytesOf('earl')).toString('latin1').replace(from, to), 'latin1');
    expect(() => decodeTorchSample(renamed('original_image', 'original_imagX'), 'x', 'x.pth')).toThrow(
      "the field 'original_image' is missing; allowed: whole numbers [height, width]",
    );
    expect(decodeTorchSample(renamed('edited_image', 'edited_imagX'), 'x', 'x.pth').target).toBeNull();
    expect(decodeTorchSample(renamed('CoT', 'CoX'), 'x', 'x.pth').rationale).toBeNull();
  });
});
