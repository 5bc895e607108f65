import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects, parquetSchema } from 'hyparquet';
import { describe, expect, it } from 'vitest';
import { ParquetTable, type ColumnTypes, type TableRow } from '../../src/core/parquet.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('parquet');

async function written(types: ColumnTypes, rows: readonly TableRow[], bytes = 1) {
  const table = new ParquetTable(join(folders(), 'table.parquet'), types);
  for (const row of rows) table.append([row], bytes);
  table.finish();
  expect(table.count).toBe(rows.length);
  const file = await asyncBufferFromFile(table.path);
  const metadata = await parquetMetadataAsync(file);
  const { children } = parquetSchema(metadata);
  return {
    // A list that is null is read as undefined.
    rows: (await parquetReadObjects({ file })).map((row) =>
      Object.fromEntries(Object.entries(row).map(([name, value]) => [name, value ?? null])),
    ),
    types: children.map(({ element, children: [list] }) => [
      element.name,
      list === undefined ? element.type : `list of ${String(list.children[0].element.type)}`,
    ]),
    groups: metadata.row_groups.map(({ num_rows }) => Number(num_rows)),
  };
}

const TYPES: ColumnTypes = {
  word: 'text',
  loss: 'number',
  step: 'integer',
  done: 'boolean',
  ids: 'integers',
  scores: 'numbers',
  names: 'texts',
};

describe('a parquet table', () => {
  it('gives back what was appended, whatever is null or not finite', async () => {
    const rows = [
      { word: 'ä "b"', loss: 0.1, step: 2 ** 40, done: true, ids: [1, 2], scores: [0.5, null], names: ['x'] },
      { word: null, loss: NaN, step: null, done: null, ids: [], scores: [], names: null },
      { loss: -Infinity, ids: null },
    ];
    const read = await written(TYPES, rows);
    const empty = { word: null, loss: null, step: null, done: null, ids: null, scores: null, names: null };
    expect(read.rows).toEqual([
      { ...rows[0], step: 2n ** 40n },
      { ...empty, ...rows[1] },
      { ...empty, loss: -Infinity },
    ]);
  });

  it('has the same types without rows, with nulls alone, and with values', async () => {
    const all = await Promise.all([[], [{}], [{ word: 'a', loss: 1, step: 1 }]].map((rows) => written(TYPES, rows)));
    for (const { types } of all) {
      expect(types).toEqual([
        ['word', 'BYTE_ARRAY'],
        ['loss', 'DOUBLE'],
        ['step', 'INT64'],
        ['done', 'BOOLEAN'],
        ['ids', 'list of INT32'],
        ['scores', 'list of DOUBLE'],
        ['names', 'list of BYTE_ARRAY'],
      ]);
    }
  });

  it('ends a group of rows by their number and by their bytes', async () => {
    const rows = Array.from({ length: 20_005 }, (_, step) => ({ step }));
    expect((await written({ step: 'integer' }, rows)).groups).toEqual([20_000, 5]);
    const read = await written({ step: 'integer', word: 'text' }, rows.slice(0, 3), 20 * 2 ** 20);
    expect(read.groups).toEqual([2, 1]);
    expect(read.rows.map(({ step }) => step as bigint)).toEqual([0n, 1n, 2n]);
  });

  it('raises for a column that it does not have, and for a folder that is not there', () => {
    const path = join(folders(), 'table.parquet');
    expect(() => new ParquetTable(path, { a: 'number' }).append([{ b: 1 }], 1)).toThrow('a column b');
    expect(existsSync(path)).toBe(true);
    expect(() => new ParquetTable(join(path, 'x'), {})).toThrow('ENOTDIR');
  });
});
