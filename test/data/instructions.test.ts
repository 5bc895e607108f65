import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { readInstructions } from '../../src/data/instructions.js';
import { testFolders } from '../support/folder.js';
import { jsonLines, plain, writeFiles } from './image_files.js';

const folders = testFolders('instructions');
const png = plain(2, 2, [1, 2, 3]);

function fileOf(content: Uint8Array | string): string {
  const folder = folders();
  writeFiles(folder, { 'a.png': png, 'sub/b.png': png, 'edits.jsonl': content });
  mkdirSync(join(folder, 'folder.png'));
  return join(folder, 'edits.jsonl');
}

function errorOf(content: Uint8Array | string): { text: string; file: string } {
  const file = fileOf(content);
  try {
    readInstructions(file);
  } catch (error) {
    if (error instanceof DataError) return { text: error.toText(), file };
    throw error;
  }
  throw new Error('nothing was refused');
}

const edit = (more: object): string => JSON.stringify({ source: 'a.png', instruction: 'x', ...more });

describe('readInstructions', () => {
  it('finds images from the folder of the file, and fills what is left out', () => {
    const file = fileOf(
      `${jsonLines([
        { source: 'a.png', instruction: ' make it  red ' },
        { source: 'sub/b.png', instruction: 'x', edited: 'a.png', rationale: 'so', split: 'validation' },
      ])}\r\n\n`,
    );
    const folder = join(file, '..');
    expect(readInstructions(file)).toEqual([
      {
        where: `${file}:1`,
        source: join(folder, 'a.png'),
        instruction: 'make it  red',
        edited: null,
        rationale: null,
        split: 'train',
      },
      {
        where: `${file}:2`,
        source: join(folder, 'sub/b.png'),
        instruction: 'x',
        edited: join(folder, 'a.png'),
        rationale: 'so',
        split: 'validation',
      },
    ]);
  });

  it.each<readonly [string, string, RegExp]>([
    ['what is not JSON', '\n{"source": "a.png"', /^FILE:2: is not JSON/],
    ['a list', '[1]', /^FILE:1: found \[1\]; allowed: an object/],
    ['a picture itself', `{"source": ["${'A'.repeat(9000)}"], "instruction": "x"}`, /^FILE:1: 'source' is .{40,70}…; /],
    ['a missing field', '{"source": "a.png"}', /^FILE:1: 'instruction' is missing/],
    ['an empty one', '{"source": "a.png", "instruction": " "}', /^FILE:1: 'instruction' is " "/],
    ['a number', '{"source": 7, "instruction": "x"}', /^FILE:1: 'source' is 7/],
    ['an unknown field', edit({ edit: 'a.png' }), /^FILE:1: unknown field 'edit'; allowed: source, /],
    ['a picture that is not there', edit({ source: 'c.png' }), /^FILE:1: 'source': .*\/c\.png\n/],
    ['a folder for a picture', edit({ edited: 'folder.png' }), /^FILE:1: 'edited': .* is not a file\n/],
    ['a split that is a path', edit({ split: '../x' }), /^FILE:1: 'split' is "\.\.\/x"; allowed: a name/],
    ['a special token', edit({ instruction: 'an <|image end|>' }), /^FILE:1: 'instruction' contains <\|image end\|>/],
    ['an empty file', ' \n', /^FILE: the file has no edits/],
  ])('rejects %s, with the file and the line', (_name, content, message) => {
    const { text, file } = errorOf(content);
    expect(text.replaceAll(file, 'FILE')).toMatch(message);
  });

  it('reports all wrong lines at once, at most twenty', () => {
    const { text, file } = errorOf(jsonLines(Array.from({ length: 22 }, () => ({ instruction: 'x' }))));
    const lines = text.split('\n');
    expect(lines[0]).toBe('22 problems found');
    expect(lines[1]).toContain(`${file}:1: 'source' is missing`);
    expect(lines[20]).toContain(`${file}:20: 'source' is missing`);
    expect(lines[21]).toBe('  and 2 more');
  });

  it('rejects a file that is missing, and one that is not a text', () => {
    expect(() => readInstructions(join(folders(), 'none.jsonl'))).toThrow('there is no such file');
    expect(errorOf(Uint8Array.of(0x7b, 0xff)).text).toContain('is not text in UTF-8');
  });
});
