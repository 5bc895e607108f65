/** What rows of edits show, as far as the beginnings of lists and of pictures tell. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { encodePlainPng } from '../../src/core/images/png.js';
import { sourceSizes } from '../../src/data/image_edits.js';
import { testFolder } from '../support/folder.js';

const folder = testFolder('pictured-look');
const png = (width: number, height: number): Uint8Array =>
  encodePlainPng({ width, height, data: new Uint8Array(3 * width * height) });
mkdirSync(join(folder, 'media'));
writeFileSync(join(folder, 'a.png'), png(8, 12));
writeFileSync(join(folder, 'b.png'), png(20, 4));
writeFileSync(join(folder, 'media', 'a.png'), png(3, 5));
writeFileSync(join(folder, 'photo.jpg'), Buffer.alloc(64, 1));
const list = (name: string, rows: readonly unknown[]): string => {
  const path = join(folder, name);
  writeFileSync(path, rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n'));
  return path;
};
const [a, b] = [
  { width: 8, height: 12 },
  { width: 20, height: 4 },
];

describe('the images that rows show', () => {
  it('are all of each row, with the sizes that headers tell', () => {
    const path = list('rows.jsonl', [
      { before: 'a.png' },
      { before: ['a.png', 'b.png', join(folder, 'a.png')] },
      { before: ['photo.jpg', 'a.png'] },
      { before: ['a.png', 'none.png'] },
      '{broken',
      { other: 'a.png' },
      '7',
      '',
    ]);
    expect(sourceSizes({ path, media: null, column: 'before' })).toEqual([[a], [a, b, a], [null, a]]);
    const elsewhere = sourceSizes({ path, media: join(folder, 'media'), column: 'before' });
    expect(elsewhere[0]).toEqual([{ width: 3, height: 5 }]);
  });

  it('are none of a list that is missing, or is no JSON lines', () => {
    for (const path of [join(folder, 'none.jsonl'), list('rows.parquet', ['PAR1'])]) {
      expect(sourceSizes({ path, media: null, column: 'before' })).toEqual([]);
    }
  });

  it('are those of the first rows', () => {
    const path = list('many.jsonl', Array<object>(600).fill({ before: 'a.png' }));
    expect(sourceSizes({ path, media: null, column: 'before' })).toHaveLength(512);
    const long = list('long.jsonl', [{ before: 'a.png' }, { before: 'b.png', words: 'w'.repeat(2 ** 22) }]);
    expect(sourceSizes({ path: long, media: null, column: 'before' })).toEqual([[a]]);
  });
});
