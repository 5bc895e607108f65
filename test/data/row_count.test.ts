import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { countRows } from '../../src/data/rows.js';
import { testFolder } from '../support/folder.js';

const folder = testFolder('row_count');

function write(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

it('counts lines, prompts and listed samples, and no more than are wanted', () => {
  const lines = write('lines.jsonl', '{"a": 1}\n  \n{"a": 2}\n{"a": 3}');
  expect([countRows(lines, 10), countRows(lines, 3), countRows(lines, 2)]).toEqual([3, 3, 2]);
  expect(countRows(write('prompts.txt', 'a\n# a remark\n\nb\n'), 10)).toBe(2);
  mkdirSync(join(folder, 'listed', 'list'), { recursive: true });
  const list = write('listed/list/tokenized_datalist.json', '{"path_list": ["a.npz", "b.npz"]}');
  expect([countRows(list, 10), countRows(join(folder, 'listed'), 10), countRows(list, 1)]).toEqual([2, 2, 1]);
});

it('adds up the files of a folder', () => {
  mkdirSync(join(folder, 'files'));
  for (const name of ['a', 'b']) write(`files/${name}.jsonl`, '{"a": 1}\n{"a": 2}\n');
  expect([countRows(join(folder, 'files'), 10), countRows(join(folder, 'files'), 3)]).toEqual([4, 3]);
});

it('does not know of what it would have to read first, or what is missing', () => {
  expect(countRows(join(folder, 'none.jsonl'), 10)).toBeNull();
  expect(countRows(write('rows.parquet', 'PAR1'), 10)).toBeNull();
  expect(countRows(write('other.json', '{"rows": []}'), 10)).toBeNull();
  const long = write('long.jsonl', `{"a": "${'x'.repeat(3 * 2 ** 20)}"}\n`.repeat(2));
  expect(countRows(long, 3)).toBeNull();
});
