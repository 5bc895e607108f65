import { describe, expect, it } from 'vitest';
import { parseJson } from '../../../src/core/http/json.js';
import { RandomStream } from '../../../src/core/random.js';

const parse = (text: string) => parseJson(Buffer.from(text));

describe('JSON of strangers', () => {
  it.each<[string, string]>([
    ['quotes and backslashes', JSON.stringify({ a: 'x\\"y\\\\', b: ['"', '\\', '\\\\"', ''] })],
    ['brackets in strings', JSON.stringify({ a: '['.repeat(200_000), b: `"${'{,'.repeat(200_000)}` })],
    ['what is nested 30 deep', `${'['.repeat(30)}1${']'.repeat(30)}`],
    ['many lists side by side', `[${Array.from({ length: 40_000 }, () => '[]').join()}]`],
  ])('is read with %s', (_what, text) => {
    expect(parse(text)).toEqual(JSON.parse(text));
  });

  it.each<[string, string | Buffer, string]>([
    ['too many values', `[${'0,'.repeat(200_000)}0]`, 'more than 100000 values'],
    ['too many lists', `[${'[],'.repeat(100_000)}0]`, 'more than 100000 values'],
    ['too many levels', '['.repeat(1e6), 'nested deeper than 32'],
    ['levels behind a string', `{"a\\"":${'['.repeat(1e6)}`, 'nested deeper than 32'],
    ['a string without end', '"abc', 'not JSON'],
    ['a string that ends with an escape', '"abc\\', 'not JSON'],
    ['nothing', '', 'not JSON'],
    ['no UTF-8', Buffer.from([0x22, 0xff, 0x22]), 'not UTF-8'],
  ])('is rejected with %s', (_what, text, words) => {
    expect(() => parseJson(Buffer.from(text))).toThrow(words);
  });

  const url = `data:image/png;base64,${'A'.repeat(2_000)}`;
  it.each<[string, unknown, boolean]>([
    ['images of any length', { a: url, b: [url] }, true],
    ['text of some length', { a: 'x'.repeat(900) }, true],
    ['longer text', { a: 'x'.repeat(1_100) }, false],
    ['longer text in pieces', Array.from({ length: 120 }, () => 'ten bytes!'), false],
    ['longer names', { ['x'.repeat(1_100)]: 1 }, false],
    ['what escapes make of an image', { a: `data:${'\n'.repeat(600)}` }, false],
    ['letters that no image has', { a: `data:${'é'.repeat(600)}` }, false],
    ['what only holds an image', { a: ` ${url}` }, false],
  ])('is bounded in its text if requested: %s', (_what, value, read) => {
    const bytes = Buffer.from(JSON.stringify(value));
    if (read) expect(parseJson(bytes, 1_000)).toEqual(value);
    else expect(() => parseJson(bytes, 1_000)).toThrow('more than 1000 bytes of text besides its images');
    expect(parseJson(bytes)).toEqual(value);
  });

  it('means the same as it does to the parser, whatever its strings hold', () => {
    const random = new RandomStream(1, 'json of strangers');
    const letters = ['"', '\\', '[', '{', ',', 'a', '\n', 'é'];
    for (let i = 0; i < 2_000; i++) {
      const text = Array.from({ length: 12 }, () => letters[random.integer(letters.length)]).join('');
      expect(parse(JSON.stringify([{ [text]: text }]))).toEqual([{ [text]: text }]);
    }
  });
});
