import { mkdirSync, writeFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { RunPaths } from '../../src/run/paths.js';
import { readRecord } from '../../src/run/record.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('recorded-config');

it.each([undefined, null, 0, 2, '1'])('a record of format %s is rejected', (format) => {
  const paths = new RunPaths(newFolder(), 'begun');
  mkdirSync(paths.dir);
  const record = { run_name: 'begun', hash: 'h', settings: {}, parents: [], attempts: [] };
  writeFileSync(paths.record, JSON.stringify({ ...record, format: 1 }));
  expect(readRecord(paths)).toMatchObject(record);
  writeFileSync(paths.record, JSON.stringify({ ...record, format }));
  expect(() => readRecord(paths)).toThrow('cannot read the run record');
});
