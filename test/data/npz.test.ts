import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zipSync } from 'fflate';
import { afterAll, describe, expect, it } from 'vitest';
import { EditrlError } from '../../src/core/errors.js';
import { openDatalist } from '../../src/data/datalist.js';
import { openEditDataset } from '../../src/data/edits.js';
import { decodeEditSample, decodeNpy, decodeNpz, encodeEditSample, encodeNpy, encodeNpz } from '../../src/data/npz.js';
import type { EditSample } from '../../src/data/types.js';
import { testFolders } from '../support/folder.js';

const bombs = testFolders('npz-bombs');

const sample: EditSample & { readonly sourcePng: Uint8Array } = {
  id: 'samples/000000.npz',
  instruction: 'remove the red circle – ü',
  source: { height: 2, width: 3, codes: Int32Array.of(0, 1, 2, 3, 4, 70000) },
  sourcePng: Uint8Array.of(1, 2, 3),
  target: { height: 2, width: 3, codes: Int32Array.of(5, 4, 3, 2, 1, 0) },
  targetPng: Uint8Array.of(9),
  rationale: 'red circle at a1 goes away',
};
const unlabelled: typeof sample = { ...sample, target: null, targetPng: null, rationale: null };

/** A .npy file as numpy writes it. */
function npy(header: string, body: Uint8Array): Uint8Array {
  const text = `${header.padEnd(117)}\n`;
  return Buffer.concat([Buffer.from('\x93NUMPY\x01\x00v\x00', 'latin1'), Buffer.from(text, 'latin1'), body]);
}

describe('npy', () => {
  it('keeps dtype, shape and values, and begins its data at a multiple of 64', () => {
    const ints = { dtype: 'int32', shape: [2, 2], data: Int32Array.of(-1, 0, 2 ** 31 - 1, -(2 ** 31)) } as const;
    const bytes = { dtype: 'uint8', shape: [3], data: Uint8Array.of(0, 128, 255) } as const;
    for (const array of [ints, bytes]) {
      const file = encodeNpy(array);
      expect((file.length - array.data.byteLength) % 64).toBe(0);
      expect(decodeNpy(file, 'x')).toEqual(array);
      // Bytes inside a zip lie at any offset.
      const shifted = new Uint8Array(file.length + 1);
      shifted.set(file, 1);
      expect(decodeNpy(shifted.subarray(1), 'x')).toEqual(array);
    }
  });

  it('reads the integers that numpy makes by default', () => {
    const body = Buffer.alloc(16);
    body.writeBigInt64LE(7n, 0);
    body.writeBigInt64LE(-3n, 8);
    const header = "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), }";
    expect(decodeNpy(npy(header, body), 'x')).toEqual({ dtype: 'int32', shape: [1, 2], data: Int32Array.of(7, -3) });
  });

  it.each([
    ["{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4, /dtype is <f4/],
    ["{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }", 4, /Fortran/],
    ["{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }", 4, /needs 9 bytes, 4 are there/],
    ['{}', 0, /no dtype or shape/],
  ])('rejects %s', (header, length, message) => {
    expect(() => decodeNpy(npy(header, new Uint8Array(length)), 'some.npy')).toThrow(message);
  });
});

describe('edit samples', () => {
  it.each([['labelled', sample] as const, ['unlabelled', unlabelled] as const])(
    '%s ones are read back',
    (_name, it_) => {
      expect(decodeEditSample(encodeEditSample(it_), it_.id, 'here')).toEqual(it_);
      expect(encodeEditSample(it_)).toEqual(encodeEditSample(it_));
    },
  );

  it('say which field is missing or wrong', () => {
    const arrays = decodeNpz(encodeEditSample(sample), 'here');
    const without = Object.fromEntries([...arrays].filter(([name]) => name !== 'source_tokens'));
    expect(() => decodeEditSample(encodeNpz(without), 'a', 'f.npz')).toThrow(/'source_tokens' is missing/);
    const flat = {
      ...Object.fromEntries(arrays),
      target_tokens: { dtype: 'uint8', shape: [1], data: new Uint8Array(1) },
    } as const;
    expect(() => decodeEditSample(encodeNpz(flat), 'a', 'f.npz')).toThrow(/'target_tokens' is uint8 \[1\]/);
  });

  it('are read from deflated zips as well', () => {
    const arrays = decodeNpz(encodeEditSample(sample), 'here');
    const entries = Object.fromEntries([...arrays].map(([name, array]) => [`${name}.npy`, encodeNpy(array)]));
    expect(decodeEditSample(zipSync(entries, { level: 9 }), sample.id, 'here')).toEqual(sample);
  });
});

describe('datasets of edits', () => {
  const root = mkdtempSync(join(tmpdir(), 'editrl-data-'));
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  function dataset(name: string, list: unknown): string {
    const folder = join(root, name);
    mkdirSync(join(folder, 'list'), { recursive: true });
    mkdirSync(join(folder, 'samples'), { recursive: true });
    writeFileSync(join(folder, 'samples', 'a.npz'), encodeEditSample(sample));
    const text = typeof list === 'string' ? list : JSON.stringify(list);
    writeFileSync(join(folder, 'list', 'tokenized_datalist.json'), text);
    return folder;
  }

  function problem(act: () => unknown): EditrlError {
    try {
      act();
    } catch (error) {
      if (error instanceof EditrlError) return error;
      throw error;
    }
    throw new Error('nothing was raised');
  }

  it('read relative, prefixed and absolute paths, from the list or its folder', () => {
    const relative = dataset('relative', { path_list: ['samples/a.npz'] });
    const prefixed = dataset('prefixed', { prefix: 'samples', path_list: ['a.npz'] });
    const absolute = dataset('absolute', { path_list: [join(relative, 'samples', 'a.npz')] });
    for (const folder of [relative, prefixed, absolute]) {
      for (const path of [folder, join(folder, 'list', 'tokenized_datalist.json')]) {
        const edits = openEditDataset(path);
        expect(edits.length).toBe(1);
        expect(edits.read(0).instruction).toBe(sample.instruction);
      }
    }
    expect(openEditDataset(relative).read(0).id).toBe('samples/a.npz');
  });

  it("fall back to the folder above the list's if their prefix is gone, and say so", () => {
    const gone = dataset('gone', { prefix: '/made/on/another/machine', path_list: ['samples/a.npz'] });
    const list = join(gone, 'list', 'tokenized_datalist.json');
    for (const path of [gone, list]) {
      const edits = openEditDataset(path);
      expect(edits.read(0).instruction).toBe(sample.instruction);
      expect(edits.remark).toBe(
        `${list}: its prefix "/made/on/another/machine" is not a folder on this machine; as in EARL's RL, its samples are read from ${gone}`,
      );
    }
    // Wherever the list lies: it is the grandparent in EARL.
    mkdirSync(join(gone, 'lists'));
    const elsewhere = join(gone, 'lists', 'mine.json');
    writeFileSync(elsewhere, JSON.stringify({ prefix: 'no/such', path_list: ['samples/a.npz'] }));
    expect(openDatalist(elsewhere).directory).toBe(gone);
    const there = dataset('there', { prefix: 'samples', path_list: ['a.npz'] });
    expect(openDatalist(there)).toMatchObject({ directory: join(there, 'samples'), remark: null });
    expect(openDatalist(dataset('bare', { path_list: ['a.npz'] })).remark).toBeNull();
  });

  it('are held to the digests that their list has', () => {
    const path = dataset('digests', { path_list: ['samples/a.npz'] });
    const file = join(path, 'samples', 'a.npz');
    const listed = (sha256: unknown): string => {
      const list = { path_list: ['samples/a.npz'], sha256 };
      writeFileSync(join(path, 'list', 'tokenized_datalist.json'), JSON.stringify(list));
      return path;
    };
    const { digest: bare } = openEditDataset(path);
    const edits = openEditDataset(listed([createHash('sha256').update(readFileSync(file)).digest('hex')]));
    expect(edits.digest).toEqual({ ids: bare.ids, files: expect.any(String) as string });
    expect(bare.files).toBeNull();
    expect(edits.read(0).instruction).toBe(sample.instruction);
    writeFileSync(file, Uint8Array.from([...readFileSync(file), 0]));
    expect(problem(() => edits.read(0)).message).toContain('is not the one that was listed');
    for (const wrong of [[], ['aa'], 'a']) {
      expect(problem(() => openEditDataset(listed(wrong))).message).toContain('"sha256" that is not one for each');
    }
  });

  it('report what is wrong, where, and what to do', () => {
    const missing = problem(() => openEditDataset(join(root, 'tiny', 's', 'train', 'list', 'tokenized_datalist.json')));
    expect(missing).toMatchObject({
      code: 'data',
      where: expect.stringContaining('tokenized_datalist.json') as string,
    });
    expect(missing.next).toContain('makes the tiny world');
    expect(problem(() => openEditDataset(join(root, 'none.json'))).next).toContain('APP__DATA_DIR');
    expect(problem(() => openEditDataset(dataset('text', '{"path_list": [')))).toMatchObject({ code: 'data' });
    expect(problem(() => openEditDataset(dataset('other', { paths: [] }))).message).toContain('path_list');
    expect(problem(() => openEditDataset(dataset('empty', { path_list: [] }))).message).toContain('empty');

    const gone = openEditDataset(dataset('gone', { path_list: ['samples/b.npz'] }));
    expect(problem(() => gone.read(0))).toMatchObject({ where: join(root, 'gone', 'samples', 'b.npz') });
    expect(problem(() => gone.read(1)).message).toContain('no sample 1');

    const folder = dataset('kinds', { path_list: ['samples/a.pt', 'samples/a.xyz', 'samples/cut.npz'] });
    for (const name of ['a.pt', 'a.xyz']) writeFileSync(join(folder, 'samples', name), '');
    writeFileSync(join(folder, 'samples', 'cut.npz'), encodeEditSample(sample).subarray(0, 300));
    const kinds = openEditDataset(folder);
    expect(problem(() => kinds.read(0)).message).toContain('not a readable file of torch.save');
    expect(problem(() => kinds.read(1)).toText()).toMatch(/'\.xyz' cannot be read\n.*\.npz, \.pt, \.pth/);
    expect(problem(() => kinds.read(2))).toMatchObject({ code: 'data', where: join(folder, 'samples', 'cut.npz') });
  });
});

it('an archive that unpacks to far more than a sample has is rejected before it is unpacked', () => {
  // 300 MiB of zeros in 0.3 MB, as two entries of which each would do.
  const zeros = new Uint8Array(150 * 2 ** 20);
  const folder = bombs();
  mkdirSync(join(folder, 'samples'), { recursive: true });
  writeFileSync(join(folder, 'list.json'), JSON.stringify({ path_list: ['samples/a.npz'] }));
  writeFileSync(join(folder, 'samples', 'a.npz'), zipSync({ 'a.npy': zeros, 'b.npy': zeros }, { level: 1 }));
  const dataset = openEditDataset(join(folder, 'list.json'));
  expect(() => dataset.read(0)).toThrow('unpacked, the .npz file has more than 256 MiB, which no sample has');
});
