import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { checkRows, openRows, readRows, rowFiles, valueAt, type Row, type RowSource } from '../../src/data/rows.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('rows');
const FIXTURES = join(import.meta.dirname, 'fixtures', 'rows');

function file(name: string, content: string | Uint8Array): string {
  const path = join(newFolder(), name);
  writeFileSync(path, content);
  return path;
}

const all = (source: RowSource): Row[] => Array.from({ length: source.length }, (_, i) => source.read(i));

describe('JSON lines', () => {
  it('are rows, named by their file and line', async () => {
    const path = file('train.jsonl', '{"prompt":"a"}\n{"prompt":"b","n":2}\n');
    const rows = await openRows(path);
    expect(all(rows)).toEqual([{ prompt: 'a' }, { prompt: 'b', n: 2 }]);
    expect(rows).toMatchObject({ name: path, remark: null });
    expect([rows.id(1), rows.place(1)]).toEqual(['train.jsonl:2', `${path}:2`]);
  });

  it('may begin with a mark, end with carriage returns, and have blank lines, which are counted', async () => {
    const rows = await openRows(file('train.jsonl', '\uFEFF{"a":"x\u2028y"}\r\n\r\n  \n{"a":2}\r\n'));
    expect(all(rows)).toEqual([{ a: 'x\u2028y' }, { a: 2 }]);
    expect(rows.id(1)).toBe('train.jsonl:4');
  });

  it('need no last end of line', async () => {
    expect(all(await openRows(file('a.jsonl', '{"a":1}\n{"a":2}')))).toEqual([{ a: 1 }, { a: 2 }]);
  });

  it('may be many', async () => {
    const rows = await openRows(file('train.jsonl', '{"a":1}\n'.repeat(200_000)));
    expect([rows.length, rows.id(199_999)]).toEqual([200_000, 'train.jsonl:200000']);
  });

  it('are not looked for any longer in a file of another kind', async () => {
    const { problems } = await readRows(file('table.jsonl', 'a,b\n'.repeat(200_000)));
    expect(problems).toHaveLength(101);
    expect(problems[100].message).toContain('the lines after line 100 were not checked');
    expect(problems[99].where).toMatch(/table\.jsonl:100$/);
  });

  const broken: readonly (readonly [string, string, RegExp, string])[] = [
    ['a line that is cut off', '{"a":1}\n\n{"a":\n', /is not JSON/, ':3'],
    ['a list', '[1]\n', /found a line that is not an object/, ':1'],
    ['null', 'null\n', /found a line that is not an object/, ':1'],
    ['no lines', '\n \n', /the dataset is empty/, ''],
  ];
  it.each(broken)('with %s are rejected', async (_, text, message, line) => {
    const path = file('train.jsonl', text);
    await expect(openRows(path)).rejects.toThrow(DataError);
    await expect(openRows(path)).rejects.toThrow(message);
    await expect(openRows(path)).rejects.toMatchObject({ where: `${path}${line}` });
  });
});

describe('a text', () => {
  it('has a prompt on each line but those that are blank or begin with #', async () => {
    const path = file('hard.txt', '# Odd ones.\n\na green cat \r\n  # not this\na square wheel');
    const rows = await openRows(path);
    expect(all(rows)).toEqual([{ prompt: 'a green cat' }, { prompt: 'a square wheel' }]);
    expect([rows.id(0), rows.place(1)]).toEqual(['hard.txt:3', `${path}:5`]);
    expect(() => checkRows(path, ['prompt'])).not.toThrow();
    expect(() => checkRows(path, ['prompt', 'expected'])).toThrow("no column 'expected'; a text has one column");
  });
});

const turns = (i: number) => [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: `What is ${i} + ${i}? é😀` },
];
const row = (i: number): Row => ({
  prompt: turns(i),
  answer: i === 1 ? null : String(2 * i),
  count: i,
  score: i / 4,
  right: i % 2 === 0,
  tags: Array.from({ length: i }, () => 'sum'),
  // A number cannot hold it: words can.
  large: String(2n ** 53n + 2n * BigInt(i) + 1n),
});

describe('parquet files', () => {
  it.each(['snappy', 'zstd'])('with %s are the rows that were written, as JSON would hold them', async (codec) => {
    const rows = await openRows(join(FIXTURES, `${codec}.parquet`));
    expect(all(rows)).toStrictEqual([0, 1, 2].map(row));
    expect(rows.id(2)).toBe(`${codec}.parquet:3`);
  });

  it('that are broken are rejected by name', async () => {
    const whole = readFileSync(join(FIXTURES, 'zstd.parquet'));
    for (const bytes of [whole.subarray(0, 400), whole.subarray(0, -9), Buffer.alloc(0)]) {
      const path = file('train.parquet', bytes);
      await expect(openRows(path)).rejects.toThrow(/cannot be read as parquet: /);
      await expect(openRows(path)).rejects.toMatchObject({ where: path });
    }
  });
});

describe('what a lenient reader would change', () => {
  it('decimals keep their digits, wherever they are', async () => {
    const rows = all(await openRows(join(FIXTURES, 'decimals.parquet')));
    const short = ['3.10', '-0.05', '1200.00', null];
    expect(rows.map((each) => each['short'])).toEqual(short);
    expect(rows.map((each) => each['long'])).toEqual([
      '12345678901234567890.123456789',
      '-1.000000001',
      '0.000000000',
      null,
    ]);
    expect(rows.map((each) => each['list'])).toEqual(short.map((one) => [one, null]));
    expect(rows.map((each) => each['inner'])).toEqual(short.map((price) => ({ price })));
    expect(rows.map((each) => each['map'])).toEqual(short.map((key) => ({ key })));
    const integers = all(await openRows(join(FIXTURES, 'decimal_integers.parquet')));
    expect(integers.map(({ n }) => n)).toEqual(short);
  });

  it('a text of parquet that is not UTF-8 is a problem of its row', async () => {
    const path = join(FIXTURES, 'latin1.parquet');
    await expect(openRows(path)).rejects.toThrow(DataError);
    await expect(openRows(path)).rejects.toMatchObject({ where: `${path}:2` });
    await expect(openRows(path)).rejects.toThrow("column 'prompt' has a text that is not UTF-8");
  });

  it('bytes stay bytes, and a row is found where its image is', async () => {
    const [row] = all(await openRows(join(FIXTURES, 'pictures.parquet')));
    expect(row).toMatchObject({ source: { path: 'a.png', bytes: expect.any(Uint8Array) as Uint8Array } });
  });

  it.each([
    ['a.jsonl', Buffer.from('{"a":1}\n{"a":"hei\u00dft"}\n', 'latin1'), ':2'],
    ['a.jsonl', Buffer.from('{"a":1}\n\n{"a":"\\ud83d"}\n'), ':3'],
    ['a.txt', Buffer.from('a\nhei\u00dft\n', 'latin1'), ':2'],
    ['a.txt', Buffer.from('a\nb\n', 'utf16le'), ':1'],
    ['a.jsonl', Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:0\n'), ''],
    ['a.parquet', Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:0\n'), ''],
    ['a.txt', Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:0\n'), ''],
  ])('%s of other text (%#) is rejected with its line', async (name, bytes, line) => {
    const path = file(name, bytes);
    await expect(openRows(path)).rejects.toThrow(DataError);
    await expect(openRows(path)).rejects.toMatchObject({ where: `${path}${line}` });
  });

  it('a damaged parquet file is named as such, whatever the damage', async () => {
    const whole = readFileSync(join(FIXTURES, 'zstd.parquet'));
    const found = new Set<string>();
    for (let at = 4; at < whole.length; at += 43) {
      const bytes = Buffer.from(whole);
      bytes[at] ^= 0xff;
      const path = file('a.parquet', bytes);
      const problem = await openRows(path).catch((error: unknown) => error);
      if (problem instanceof Error) {
        expect(problem).toBeInstanceOf(DataError);
        found.add(problem.message);
      }
      expect(() => {
        try {
          checkRows(path, ['prompt']);
        } catch (error) {
          if (!(error instanceof DataError)) throw error;
        }
      }).not.toThrow();
    }
    expect(found).toContain('cannot be read as parquet: it is damaged or was cut short');
    for (const message of found) expect(message).toMatch(/it is damaged or was cut short|a text that is not UTF-8/);
  });
});

describe('a folder', () => {
  it('of shards is one dataset, in the order of their names', async () => {
    const rows = await openRows(join(FIXTURES, 'shards'));
    expect(all(rows)).toStrictEqual([0, 1, 2].map(row));
    expect(rows.id(2)).toBe('train-00001-of-00002.parquet:1');
  });

  it.each([
    [['train-00000-of-00001.parquet', 'test-00000-of-00001.parquet'], 'test (test-00000-of-00001.parquet), train'],
    [['train.jsonl', 'validation.jsonl'], 'train (train.jsonl), validation (validation.jsonl)'],
    [['math_dev.jsonl', 'math_eval.jsonl'], 'test (math_eval.jsonl), validation (math_dev.jsonl)'],
  ])('of several splits is rejected: %j', (names, found) => {
    const folder = newFolder();
    for (const name of names) writeFileSync(join(folder, name), '{}\n');
    expect(() => rowFiles(folder)).toThrow(`the folder has several splits: ${found}`);
  });

  it('may have names that say no split, or two', () => {
    const folder = newFolder();
    const names = ['more.jsonl', 'train-0.jsonl', 'train_dev.jsonl', 'trained.jsonl'];
    for (const name of names) writeFileSync(join(folder, name), '{}\n');
    expect(rowFiles(folder)).toEqual(names.map((name) => join(folder, name)));
  });

  it('may hold both kinds', () => {
    const folder = newFolder();
    for (const name of ['b.jsonl', 'a.parquet', 'c.txt']) writeFileSync(join(folder, name), '');
    expect(rowFiles(folder)).toEqual([join(folder, 'a.parquet'), join(folder, 'b.jsonl')]);
  });

  it.each([
    ['no rows', (folder: string) => folder, /the folder has no dataset; allowed: files of kind \.jsonl, \.parquet/],
    ['nothing of that name', (folder: string) => join(folder, 'x.jsonl'), /there is no such dataset/],
    [
      'a file of another kind',
      (folder: string) => join(folder, 'rows.csv'),
      /found a file of kind '\.csv'; allowed: \.jsonl, \.parquet, \.txt, or a folder/,
    ],
  ])('with %s is rejected', (_, path, message) => {
    const folder = newFolder();
    writeFileSync(join(folder, 'rows.csv'), 'a,b\n');
    expect(() => rowFiles(path(folder))).toThrow(DataError);
    expect(() => rowFiles(path(folder))).toThrow(message);
  });
});

describe('the digest', () => {
  it('changes with what the rows say and their order, not with where they lie', async () => {
    const digest = async (...texts: string[]): Promise<unknown> => {
      const folder = join(newFolder(), 'set');
      mkdirSync(folder);
      texts.forEach((text, i) => writeFileSync(join(folder, `${i}.jsonl`), text));
      return (await openRows(folder)).digest;
    };
    const [one, two] = ['{"a":1}\n', '{"a":2}\n'];
    expect(await digest(one, two)).toEqual(await digest(one, two));
    const others = await Promise.all([digest(two, one), digest(one), digest(one + two)]);
    for (const other of others) expect(other).not.toEqual(await digest(one, two));
  });
});

describe('a glance at a dataset', () => {
  it.each(['snappy.parquet', 'shards'])('finds the columns of %s', (name) => {
    expect(() => checkRows(join(FIXTURES, name), ['prompt', 'answer'])).not.toThrow();
    expect(() => checkRows(join(FIXTURES, name), ['prompt', 'label'])).toThrow("the dataset has no column 'label'");
  });

  it('finds those of the first line that is not blank, however long, and reads no further', () => {
    const path = file('a.jsonl', `\n \r\n${JSON.stringify({ prompt: 'a'.repeat(200_000), n: 1 })}\n{"broken`);
    expect(() => checkRows(path, ['prompt', 'n'])).not.toThrow();
    const look = (): void => checkRows(path, ['prompt', 'label']);
    expect(look).toThrow("the dataset has no column 'label'; found: prompt, n");
    expect(look).toThrow(expect.objectContaining({ where: path }) as Error);
    expect(() => checkRows(file('b.jsonl', '\uFEFF{"a":1}'), ['a'])).not.toThrow();
    expect(() => checkRows(file('c.jsonl', ' \n\n'), ['a'])).not.toThrow();
  });

  it('finds nested columns by dotted names, and says which there are', () => {
    const nested = join(FIXTURES, 'nested.parquet');
    expect(() => checkRows(nested, ['prompt', 'reward_model.ground_truth', 'reward_model', 'x.y'])).not.toThrow();
    const json = file('a.jsonl', '{"prompt":"a","reward_model":{"style":"rule","ground_truth":"5"},"x.y":"1"}');
    expect(() => checkRows(json, ['prompt', 'reward_model.ground_truth', 'reward_model', 'x.y'])).not.toThrow();
    for (const path of [nested, json]) {
      expect(() => checkRows(path, ['reward_model.answer'])).toThrow(
        "no column 'reward_model.answer'; found: prompt, reward_model.style, reward_model.ground_truth, x.y",
      );
    }
  });

  it('rejects what is broken, and what is missing', () => {
    expect(() => checkRows(file('a.jsonl', '{"a":\n'), ['a'])).toThrow(/is not JSON/);
    const whole = readFileSync(join(FIXTURES, 'zstd.parquet'));
    for (const bytes of [whole.subarray(0, -9), whole.subarray(-9), Buffer.alloc(0)]) {
      expect(() => checkRows(file('a.parquet', bytes), ['prompt'])).toThrow(
        /cannot be read as parquet: it does not end/,
      );
    }
    expect(() => checkRows('/no/such/rows', ['a'])).toThrow('there is no such dataset');
  });
});

it.each([
  ['a.b', { a: { b: 1 } }, 1],
  ['a.b', { 'a.b': 2, a: { b: 1 } }, 2],
  ['a.b.c', { 'a.b': { c: 3 } }, 3],
  ['a.b', { a: null }, null],
  ['a.b', { a: [1] }, undefined],
  ['a.b', { a: 'b' }, undefined],
  ['toString', {}, undefined],
  ['a.constructor', { a: {} }, undefined],
])('%s of %j is %s', (column, row, value) => {
  expect(valueAt(row, column)).toBe(value);
});
