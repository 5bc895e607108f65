import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { openSelfBench, readSelfBench, type PromptCheck } from '../../src/data/self_bench.js';
import { targetOf } from '../../src/rewards/terms/ocr/similarity.js';
import { testFolders } from '../support/folder.js';
import { benchFiles, writeBench } from './bench.js';
import { plain } from './image_files.js';

const newFolder = testFolders('self-bench');

function writeSums(folder: string): void {
  const names = readdirSync(folder).filter((name) => name.endsWith('.png'));
  const lines = names.map((name) => {
    const digest = createHash('sha256')
      .update(readFileSync(join(folder, name)))
      .digest('hex');
    return `${digest}  ${name}\n`;
  });
  writeFileSync(join(folder, 'SHA256SUMS'), lines.join(''));
}

function refusalOf(open: () => unknown): DataError {
  try {
    open();
  } catch (error) {
    if (error instanceof DataError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

describe('a folder of inpainting samples', () => {
  it('is read in the order of its list, by its folder or by the list', () => {
    const folder = writeBench(newFolder());
    const bench = openSelfBench(folder);
    expect(bench.length).toBe(3);
    expect(bench.name).toBe(folder);
    expect([0, 1, 2].map((index) => bench.read(index).id)).toEqual(['1', '2', '12']);
    expect(bench.read(2)).toEqual({
      id: '12',
      prompt: 'a sign that says "N12"',
      sourcePng: readFileSync(join(folder, '12_source.png')),
      maskPng: readFileSync(join(folder, '12_mask.png')),
      refPng: readFileSync(join(folder, '12_ref.png')),
      paths: {
        source: join(folder, '12_source.png'),
        mask: join(folder, '12_mask.png'),
        ref: join(folder, '12_ref.png'),
      },
    });
    expect(openSelfBench(join(folder, 'self_bench.txt')).read(1)).toEqual(bench.read(1));
    expect(() => bench.read(3)).toThrow(/no sample 3/);
  });

  it.each([
    ['12 a "B" c', '12', 'a "B" c'],
    ['12:\ta "B" c  ', '12', 'a "B" c'],
    ['  012. a "B" c\r', '012', 'a "B" c'],
    ['12, 3 apples', '12', '3 apples'],
  ])('takes the line %j', (line, id, prompt) => {
    const { '12_source.png': png } = benchFiles([12]);
    const folder = newFolder();
    const members = ['source', 'mask', 'ref'].map((member) => [`${id}_${member}.png`, png] as const);
    writeBench(folder, { ...Object.fromEntries(members), 'self_bench.txt': `\n${line}\n\n` });
    const bench = openSelfBench(folder);
    expect(bench.length).toBe(1);
    expect(bench.read(0)).toMatchObject({ id, prompt });
  });

  it("takes Calligrapher's naming: 50-Delia beside test50_source.png", () => {
    const { '12_source.png': png } = benchFiles([12]);
    const folder = newFolder();
    const names = ['source', 'mask', 'ref'].map((member) => `test50_${member}.png`);
    const files = Object.fromEntries(names.map((name) => [name, png]));
    writeBench(folder, { ...files, 'self_bench.txt': '50-Delia' });
    const bench = openSelfBench(folder, targetOf);
    expect(bench.read(0)).toMatchObject({
      id: '50',
      prompt: "The text is 'Delia'",
      paths: { source: join(folder, 'test50_source.png') },
    });
    writeFileSync(join(folder, 'self_bench.txt'), '50- It\'s here \n51-gone\n52-\n53-say "hi" "ho"\n');
    const { lines, problems } = readSelfBench(folder);
    expect(lines.map(({ prompt }) => prompt)).toEqual(["The text is 'It's here'"]);
    expect(targetOf(lines[0].prompt, 'here')).toBe("it'shere");
    const said = problems.map(({ message }) => message).join('\n');
    expect(said).toContain('sample 51 has no test51_source.png');
    expect(said).toContain('the line has a number and no prompt: "52-"');
    expect(said).toContain('the text behind the hyphen has a double quotation mark');
  });

  it('says all that is wrong with its lines and names at once', () => {
    const folder = newFolder();
    const list = ['1 fine', 'a sign without a number', '7', '2 fine too', '002 again', '30 not there', '12 whole'];
    writeBench(folder, { 'self_bench.txt': list.join('\n') });
    rmSync(join(folder, '2_mask.png'));
    const { problems, lines, samples } = readSelfBench(folder);
    const file = join(folder, 'self_bench.txt');
    expect(problems.map(({ where, message }) => [where, message])).toEqual([
      [`${file}:2`, 'the line does not begin with a number: "a sign without a number"'],
      [`${file}:3`, 'the line has a number and no prompt: "7"'],
      [`${file}:5`, 'the number 2 is already on line 4'],
      [`${file}:4`, `sample 2 has no 2_mask.png in ${folder}`],
      ...['source', 'mask', 'ref'].map((member) => [`${file}:6`, `sample 30 has no 30_${member}.png in ${folder}`]),
    ]);
    expect(lines.map(({ number }) => number)).toEqual(['1', '12']);
    expect(samples).toBe(7);
    const refusal = refusalOf(() => openSelfBench(folder));
    expect(refusal.message).toMatch(/^7 problems found\n/);
    for (const { message } of problems) expect(refusal.message).toContain(message);
    expect(refusal.next).toContain(`editrl data check ${file}`);
  });

  it('has its prompts checked if the caller requires something of them', () => {
    const folder = writeBench(newFolder(), { 'self_bench.txt': '1 a "B"\n2 a B\n' });
    const quoted: PromptCheck = (prompt, where) => {
      if (!prompt.includes('"')) throw new DataError('quotes nothing', { where });
    };
    const refusal = refusalOf(() => openSelfBench(folder, quoted));
    expect(refusal.toText()).toBe(`${join(folder, 'self_bench.txt')}:2: quotes nothing`);
    expect(openSelfBench(folder).length).toBe(2);
  });

  it('is rejected if there is not a list, or nothing in it', () => {
    expect(refusalOf(() => openSelfBench(newFolder())).message).toBe('self_bench.txt is missing');
    expect(refusalOf(() => openSelfBench(join(newFolder(), 'gone'))).message).toMatch(/is missing/);
    const empty = writeBench(newFolder(), { 'self_bench.txt': '\n' });
    expect(refusalOf(() => openSelfBench(empty)).message).toBe('the list of samples is empty');
    const other = writeBench(newFolder(), { 'self_bench.txt': Uint8Array.of(0x31, 0x20, 0xff) });
    expect(refusalOf(() => openSelfBench(other)).message).toBe('is not text in UTF-8');
  });
});

describe('the digest of inpainting samples', () => {
  const digestOf = (changes: Parameters<typeof writeBench>[1] = {}, sums = false) => {
    const folder = writeBench(newFolder(), changes);
    if (sums) writeSums(folder);
    return openSelfBench(folder).digest;
  };

  it('is that of the lines and the files, wherever they lie and whether or not they are summed', () => {
    expect(digestOf()).toEqual(digestOf());
    expect(digestOf({}, true)).toEqual(digestOf());
    const changed = digestOf({ '2_ref.png': plain(6, 4, [9, 9, 9]) });
    expect(changed.ids).toBe(digestOf().ids);
    expect(changed.files).not.toBe(digestOf().files);
    expect(digestOf({ 'self_bench.txt': '1 one\n2 two\n12 other' }).ids).not.toBe(digestOf().ids);
  });

  it('is held to: a file that changes under a run is rejected when it is read', () => {
    const folder = writeBench(newFolder());
    const bench = openSelfBench(folder);
    expect(bench.digest.files).toMatch(/^[0-9a-f]{64}$/);
    writeFileSync(join(folder, '2_mask.png'), plain(6, 4, [255, 255, 255]));
    expect(bench.read(0).id).toBe('1');
    expect(refusalOf(() => bench.read(1))).toMatchObject({ where: join(folder, '2_mask.png') });
  });

  it('of SHA256SUMS holds from the start, and needs no look into the files', () => {
    const folder = writeBench(newFolder());
    writeSums(folder);
    writeFileSync(join(folder, '2_mask.png'), plain(6, 4, [255, 255, 255]));
    const bench = openSelfBench(folder);
    expect(bench.digest).toEqual(digestOf());
    expect(refusalOf(() => bench.read(1)).message).toContain('SHA-256');
    rmSync(join(folder, '12_ref.png'));
    expect(refusalOf(() => bench.read(2)).message).toContain('ENOENT');
  });

  it('reports what is wrong with SHA256SUMS', () => {
    const folder = writeBench(newFolder());
    writeSums(folder);
    const path = join(folder, 'SHA256SUMS');
    const lines = readFileSync(path, 'utf8').split('\n');
    const gone = lines.filter((line) => !line.endsWith('2_ref.png') || line.endsWith('12_ref.png'));
    writeFileSync(path, ['not a sum', ...gone].join('\n'));
    expect(readSelfBench(folder).problems.map(({ where, message }) => [where, message])).toEqual([
      [`${path}:1`, 'the line is not a SHA-256 with a name'],
      [`${join(folder, 'self_bench.txt')}:2`, '2_ref.png is not in SHA256SUMS'],
    ]);
  });
});
