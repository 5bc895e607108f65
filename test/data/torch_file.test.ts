import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zipSync } from 'fflate';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { decodeTorchSample } from '../../src/data/earl_sample.js';
import { openEditDataset } from '../../src/data/edits.js';
import { readPickle, type PickleValue } from '../../src/data/pickle.js';
import { arrayOf, readTorchFile } from '../../src/data/torch_file.js';

const folder = join(import.meta.dirname, 'fixtures', 'torch');
const bytesOf = (name: string): Uint8Array => readFileSync(join(folder, `${name}.pth`));
const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as Record<string, unknown>;

/** As the script that made the fixtures writes what Python reads. */
function plain(value: PickleValue): unknown {
  const array = arrayOf(value);
  if (array !== null) return { dtype: array.dtype, shape: array.shape, values: array.values };
  if (value instanceof Map) {
    return { keys: [...(value as Map<PickleValue, PickleValue>)].map((pair) => pair.map(plain)) };
  }
  if (value instanceof Uint8Array) return { bytes: [...value] };
  if (Array.isArray(value)) return (value as PickleValue[]).map(plain);
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
    expect(names).toHaveLength(17);
  });
});

describe('hostile files', () => {
  afterAll(() => rmSync('/tmp/executed', { force: true }));
  const next = expect.stringMatching(
    /^(Samples are dictionaries|The file is cut short|Load it in Python, if)/,
  ) as string;

  it.each([
    ['os_system', 'the pickle wants "posix.system", which nothing here may use'],
    ['os_system_4', 'the pickle wants "posix.system", which nothing here may use'],
    ['eval', 'the pickle wants "__builtin__.eval", which nothing here may use'],
    ['getattr', 'the pickle wants "__builtin__.getattr", which nothing here may use'],
    ['torch_load', 'the pickle wants "torch.serialization.load", which nothing here may use'],
    ['class', 'the pickle wants "__main__.Plain", which nothing here may use'],
    ['own_array', 'the pickle wants "__main__.Own", which nothing here may use'],
    ['nested_call', 'the pickle fills a container by calling its class'],
    ['mentioned_and_called', 'the pickle calls torch.LongStorage'],
    ['objects', 'the pickle holds elements of "O8"; allowed: u1, i1, b1, i2, u2, i4, u4, i8, u8, f2, f4, f8'],
    ['inst', 'the pickle holds an instruction that is not read (0x53 at byte 1)'],
    ['extension', 'the pickle holds an instruction that is not read (0x82 at byte 2)'],
    ['protocol_9', 'the pickle is of protocol 9; allowed: up to 5'],
    ['long_claims', 'the pickle is cut short: 4611686018427388000 bytes are said to follow, 2 do'],
    ['no_stop', 'the pickle is cut short: 1 bytes are said to follow, 0 do'],
    ['empty_stack', 'the pickle takes from an empty stack'],
    ['no_mark', 'the pickle goes back to a mark that it has not set'],
    ['not_remembered', 'the pickle recalls what it has not remembered'],
    ['open_line', 'the pickle is cut short: Infinity bytes are said to follow, 2 do'],
    ['path', 'not a readable file of torch.save: the entry of storage "../../../etc/passwd" is not in it'],
    ['no_storage', 'not a readable file of torch.save: the entry of storage "5" is not in it'],
    [
      'short_storage',
      'not a readable file of torch.save: storage 0 is said to hold 100 elements of int64, and has 64 bytes',
    ],
    ['beyond', 'the pickle holds an array that ends at element 11 of a storage of 8'],
    ['negative_stride', 'the pickle builds a tensor of no storage and sizes'],
    ['huge_shape', "the pickle holds arrays larger than any sample's: the last of shape [2147483648, 2147483648]"],
    ['huge_together', "the pickle holds arrays larger than any sample's: the last of shape [4000, 4000]"],
    ['odd_storage', 'the pickle wants "torch.ComplexFloatStorage", which nothing here may use'],
    ['uint16', 'the pickle wants "torch._utils._rebuild_tensor_v3", which nothing here may use'],
    ['big_numbers', 'the pickle holds the number 1152921504606846976, which is too large'],
    ['compressed', 'not a readable file of torch.save: its entry x/data.pkl is compressed, which torch does not do'],
    ['no_pickle', 'not a readable file of torch.save: it has no data.pkl'],
    ['two_roots', 'not a readable file of torch.save: it has more than one data.pkl'],
    ['cut', 'not a readable file of torch.save: invalid zip data'],
    ['cut_end', 'not a readable file of torch.save: invalid zip data'],
    ['empty', 'not a readable file of torch.save: invalid zip data'],
    ['text', 'not a readable file of torch.save: invalid zip data'],
    ['before_1_6', 'a bare pickle, as torch wrote before version 1.6, is not read'],
  ])('%s is refused', (name, found) => {
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
      where: expect.stringMatching(`^${file}`) as string,
      next,
    });
  });

  it('each is looked at, and none has executed anything', () => {
    expect(readdirSync(join(folder, 'hostile'))).toHaveLength(37);
    expect(existsSync('/tmp/executed')).toBe(false);
  });

  it('entries that overlap, or are many, do not grow when they are read', () => {
    const entries = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`x/data/${i}`, new Uint8Array(100)]));
    const whole = Buffer.from(zipSync({ 'x/data.pkl': Uint8Array.of(0x4e, 0x2e), ...entries }, { level: 0 }));
    expect(readTorchFile(whole, 'x')).toBeNull();
    // Every entry of the directory is said to have the size of the whole file.
    for (let at = whole.indexOf('PK\x01\x02'); at >= 0; at = whole.indexOf('PK\x01\x02', at + 4)) {
      whole.writeUInt32LE(whole.length, at + 20);
      whole.writeUInt32LE(whole.length, at + 24);
    }
    expect(() => readTorchFile(whole, 'x')).toThrow('its entries are said to be larger than the whole');
    // A directory that is said to have more entries than there is room for.
    const end = whole.lastIndexOf('PK\x05\x06');
    whole.writeUInt16LE(60_000, end + 8);
    whole.fill(0, whole.indexOf('PK\x01\x02') + 46, end);
    expect(() => readTorchFile(whole, 'x')).toThrow(DataError);
  });

  it('every file with a byte changed or cut off is read or refused, and nothing else', () => {
    for (const name of ['earl', 'tensors_4', 'mixed_5']) {
      const whole = bytesOf(name);
      for (let at = 0; at < whole.length; at += 3) {
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
      "the field 'instruction' is missing; it has to be a text",
    );
    expect(() =>
      decodeTorchSample(
        bytesOf('earl').map((byte) => byte),
        'x',
        'x.pth',
      ),
    ).not.toThrow();
    const renamed = (from: string, to: string): Uint8Array =>
      Buffer.from(Buffer.from(bytesOf('earl')).toString('latin1').replace(from, to), 'latin1');
    expect(() => decodeTorchSample(renamed('original_image', 'original_imagX'), 'x', 'x.pth')).toThrow(
      "the field 'original_image' is missing; it has to be whole numbers [height, width]",
    );
    expect(decodeTorchSample(renamed('edited_image', 'edited_imagX'), 'x', 'x.pth').target).toBeNull();
    expect(decodeTorchSample(renamed('CoT', 'CoX'), 'x', 'x.pth').rationale).toBeNull();
  });
});

it('a pickle with a text that is not UTF-8 is rejected', () => {
  const latin = Buffer.from('\x80\x02X\x01\x00\x00\x00\xe4.', 'latin1');
  expect(() => readPickle(latin, { names: new Map(), outside: (id) => id }, 'a.pkl')).toThrow(
    /holds a text that is not UTF-8/,
  );
});
