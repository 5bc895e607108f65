import { expect, it } from 'vitest';
import { CheckpointError, DataError } from '../../src/core/errors.js';
import { inBrief, parseJson, textOf } from '../../src/core/text.js';

const broken: readonly (readonly [string, Buffer, number])[] = [
  ['Latin-1', Buffer.from('a\nWas hei\u00dft gro\u00df?\n', 'latin1'), 2],
  ['GBK', Buffer.from([0xc4, 0xe3, 0xba, 0xc3]), 1],
  ['a character that is cut', Buffer.from('a\n\n\u00e4').subarray(0, 4), 3],
  ['a surrogate in CESU-8', Buffer.from([0x61, 0x0a, 0xed, 0xa0, 0xbd]), 2],
  ['UTF-16 with a mark', Buffer.from('\ufeffabc', 'utf16le'), 1],
  ['UTF-16 without a mark', Buffer.from('abc', 'utf16le'), 1],
];

it.each(broken)('%s is rejected with its line', (_, bytes, line) => {
  const read = (): string => textOf(bytes, 'words.txt', { kind: CheckpointError });
  expect(read).toThrow(CheckpointError);
  expect(read).toThrow(expect.objectContaining({ where: `words.txt:${line}`, message: 'is not text in UTF-8' }));
});

it('reads UTF-8, with or without a mark at its beginning', () => {
  expect(textOf(Buffer.from('\ufeff\u00e4\n\ufffd\u{1f600}'), 'words.txt')).toBe('\u00e4\n\ufffd\u{1f600}');
});

it('names a Git LFS pointer', () => {
  const pointer = Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n');
  expect(() => textOf(pointer, 'rows.jsonl')).toThrow(/Git LFS pointer/);
});

it.each(['"\\ud83d"', '{"a": ["x \\uDE00"]}', '{"\\ud83d": 1}'])('%s has half a surrogate pair', (json) => {
  expect(() => parseJson(json, 'rows.jsonl:1')).toThrow(DataError);
});

it('reads whole pairs, and what only looks like one', () => {
  expect(parseJson('["\\ud83d\\ude00", "\\\\ud83d"]', 'rows.jsonl:1')).toEqual(['\u{1f600}', '\\ud83d']);
});

it('keeps the digits of whole numbers that a number cannot hold', () => {
  const json =
    '{"a": 12345678901234567890, "b": -9007199254740993, "c": "12345678901234567890", "d": 9007199254740991}';
  expect(parseJson(json, 'rows.jsonl:1')).toEqual({
    a: '12345678901234567890',
    b: '-9007199254740993',
    c: '12345678901234567890',
    d: 9007199254740991,
  });
  expect(parseJson('[1234567890123456789.5, 0.1234567890123456789, 12345678901234567e2]', 'a:1')).toEqual([
    1234567890123456789.5, 0.1234567890123456789, 12345678901234567e2,
  ]);
});

it('shows values briefly', () => {
  expect([undefined, null, NaN, 12n, 'a', { a: [1] }].map(inBrief)).toEqual([
    'nothing',
    'null',
    'NaN',
    '12',
    '"a"',
    '{"a":[1]}',
  ]);
  expect(inBrief(new Uint8Array(3_000_000))).toBe('3000000 bytes');
  expect(inBrief([{ bytes: new Uint8Array(3_000_000), path: null }])).toBe('[{"bytes":"3000000 bytes","path":null}]');
  for (const long of ['x'.repeat(1e6), { x: ['y'.repeat(1e6)] }, Array.from({ length: 1e5 }, (_, i) => i)]) {
    expect(inBrief(long).length).toBeLessThan(70);
  }
});
