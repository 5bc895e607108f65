import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { beginningOf, linesOf } from '../../src/data/large_texts.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('large-texts');

it.each(['', 'a', 'a\n', '\n\n', 'ä\r\nb\n\nc', '\u{1F600}\n\u{1F601}'])(
  '%j has the lines that a string has',
  (text) => {
    expect([...linesOf(new TextEncoder().encode(text))].map((line) => new TextDecoder().decode(line))).toEqual(
      text.split('\n'),
    );
  },
);

it('the beginning of a file is as long as it is asked for, or the whole file', () => {
  const path = join(newFolder(), 'text');
  writeFileSync(path, 'abcdef');
  expect(beginningOf(path, 4)).toBe('abcd');
  expect(beginningOf(path, 400)).toBe('abcdef');
});
