import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { checkDataset } from '../../src/data/check.js';
import { openImageEdits, readImageEdits, sourceDigest, sourcesOf } from '../../src/data/image_edits.js';
import { testFolders } from '../support/folder.js';
import { jsonLines, plain, writeFiles } from './image_files.js';

const columns = { source: 'source', instruction: 'instruction', response: 'response', target: 'target' };
const picture = plain(4, 4, [1, 2, 3]);

describe('edits of images in rows', () => {
  const newFolder = testFolders('pictured-edits');

  function listOf(rows: readonly unknown[]): string {
    const folder = newFolder();
    writeFiles(folder, { 'a.png': picture, 'sub/b.png': picture, 'edits.jsonl': jsonLines(rows) });
    return join(folder, 'edits.jsonl');
  }

  it('name their images from the folder of the list, and may have no labels', async () => {
    const list = listOf([
      { source: 'a.png', instruction: 'make it red', response: 'a red one', target: 'sub/b.png' },
      { source: 'sub/b.png', instruction: 'remove it' },
    ]);
    const edits = await openImageEdits(list, null, columns);
    expect(edits.length).toBe(2);
    expect(edits.read(0)).toMatchObject({
      id: 'edits.jsonl:1',
      instruction: 'make it red',
      source: join(list, '../a.png'),
      response: 'a red one',
      target: join(list, '../sub/b.png'),
      where: `${list}:1`,
    });
    expect(edits.read(1)).toMatchObject({ response: null, target: null });
  });

  it('may begin from several images, of which the first is edited', async () => {
    const list = listOf([
      { source: ['a.png', 'sub/b.png', 'a.png'], instruction: 'put it there', target: 'a.png' },
      { source: ['a.png'], instruction: 'put it there' },
      { source: 'a.png', instruction: 'put it there' },
    ]);
    const edits = await openImageEdits(list, null, columns);
    const [several, alone, plainly] = [0, 1, 2].map((index) => edits.read(index));
    expect(sourcesOf(several)).toEqual(['a.png', 'sub/b.png', 'a.png'].map((name) => join(list, '..', name)));
    expect(several.further).toHaveLength(2);
    // One in a list is one.
    for (const one of [alone, plainly]) expect(one).not.toHaveProperty('further');
    expect(await sourceDigest(alone)).toBe(await sourceDigest(plainly));
    expect(await sourceDigest(several)).not.toBe(await sourceDigest(alone));
  });

  it('notices that a further image is another one, and checks each', async () => {
    const rows = [{ source: ['a.png', 'sub/b.png'], instruction: 'x', target: 'a.png' }];
    const [list, other] = [listOf(rows), listOf(rows)];
    writeFiles(join(other, '..'), { 'sub/b.png': plain(8, 4, [1, 2, 3]) });
    const [one, two] = [await openImageEdits(list, null, columns), await openImageEdits(other, null, columns)];
    expect(one.digest.files).not.toBe(two.digest.files);
    expect((await checkDataset(other)).sizes).toEqual(['4x4', '8x4']);
  });

  it.each([[[]], [['a.png', '']], [['a.png', 3]], [{ a: 'a.png' }]])(
    'are refused with pictures that are none: %j',
    async (source) => {
      const { problems } = await readImageEdits(listOf([{ source, instruction: 'x' }]), null, columns);
      expect(problems.map(({ message }) => message)).toEqual([
        `column 'source': found ${JSON.stringify(source)}; allowed: the path of an image, or a list of paths`,
      ]);
    },
  );

  it.each([
    ['bytes', { bytes: 'iVBORw0KGgo=', path: null }],
    ['a list of bytes', [{ bytes: 'iVBORw0KGgo=', path: 'a.png' }]],
    ['a data URL', `data:image/png;base64,${'A'.repeat(200_000)}`],
  ])('are rejected with one short line if their images are %s', async (_, source) => {
    const row = { source, instruction: 'x' };
    const error = await readImageEdits(listOf([row, row]), null, columns).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(DataError);
    expect((error as DataError).toText().length).toBeLessThan(500);
    expect(error).toMatchObject({ message: expect.stringContaining("column 'source' contains images") as string });
  });

  it('may have other columns, and images in another folder', async () => {
    const list = listOf([{ image: 'b.png', prompt: 'go' }]);
    const media = join(list, '../sub');
    const edits = await openImageEdits(list, media, { ...columns, source: 'image', instruction: 'prompt' });
    expect(edits.read(0)).toMatchObject({ source: join(media, 'b.png'), instruction: 'go' });
  });

  it('are rejected all at once where they are broken', async () => {
    const list = listOf([
      { source: 'a.png', instruction: ' ' },
      { source: 'gone.png', instruction: 'x', response: 3 },
      { source: 'a.png', instruction: 'x' },
      { instruction: 'x', target: 'none.png' },
    ]);
    const { problems, length } = await readImageEdits(list, null, columns);
    expect(length).toBe(1);
    expect(problems.map(({ where, message }) => `${where}: ${message}`.replaceAll(join(list, '..'), ''))).toEqual([
      `/edits.jsonl:1: column 'instruction': found " "; allowed: words`,
      `/edits.jsonl:2: column 'source': there is no file /gone.png; column 'response': found 3; allowed: words, or null`,
      `/edits.jsonl:4: column 'source': found null; allowed: the path of an image, or a list of paths; column 'target': there is no file /none.png`,
    ]);
    await expect(openImageEdits(list, null, columns)).rejects.toThrow(/^3 problems found/);
  });

  it('are reported beside the lines that are not rows', async () => {
    const list = listOf([{ source: 'a.png', instruction: 'x' }, { source: 'a.png' }]);
    appendFileSync(list, '\n{"source":\n\n[3]\n');
    const { problems, samples } = await checkDataset(list);
    expect(problems.map(({ where }) => where)).toEqual([`${list}:3`, `${list}:5`, `${list}:2`]);
    expect(samples).toBe(4);
    await expect(openImageEdits(list, null, columns)).rejects.toThrow(/^3 problems found/);
  });

  it.each([
    ['{"source":\n{"source":"a.png","instruction":"x"}', 'edits.jsonl:1: is not JSON'],
    ['{"question":"x"}', 'edits.jsonl: the rows are neither edits (columns source, instruction), nor captioned images'],
  ])('are looked for in rows of any kind: %s', async (lines, message) => {
    const list = listOf([]);
    writeFiles(join(list, '..'), { 'edits.jsonl': lines });
    await expect(checkDataset(list)).rejects.toSatisfy((error) => (error as DataError).toText().includes(message));
  });

  it('are read through by data check, images and all', async () => {
    const list = listOf([
      { source: 'a.png', instruction: 'x', response: 'y' },
      { source: 'a.png', instruction: 'x' },
      { source: 'bad.png', instruction: 'x' },
      { source: 'gone.png', instruction: 'x' },
    ]);
    writeFiles(join(list, '..'), { 'bad.png': 'no picture' });
    const report = await checkDataset(list);
    expect(report).toMatchObject({ kind: 'pictured', samples: 4, labelled: 1, sizes: ['4x4'] });
    expect(report.problems.map(({ where }) => where)).toEqual([`${list}:4`, `${list}:3`]);
  });

  it('are read by other columns if data check gets them', async () => {
    const list = listOf([
      { before: 'a.png', ask: 'x', after: 'sub/b.png' },
      { before: 'gone.png', ask: 'x' },
    ]);
    const report = await checkDataset(list, { columns: { source: 'before', instruction: 'ask', target: 'after' } });
    expect(report).toMatchObject({ kind: 'pictured', samples: 2, labelled: 1 });
    expect(report.problems.map(({ where }) => where)).toEqual([`${list}:2`]);
  });

  it('change their digest with the images that they name', async () => {
    const list = listOf([{ source: 'a.png', instruction: 'x' }]);
    const before = (await openImageEdits(list, null, columns)).digest;
    writeFiles(join(list, '..'), { 'a.png': plain(9, 9, [7, 8, 9]) });
    const after = (await openImageEdits(list, null, columns)).digest;
    expect(after.ids).toBe(before.ids);
    expect(after.files).not.toBe(before.files);
  });
});
