import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { endTokens, openTokenizer } from '../../../src/models/tokenizer/open.js';
import { FIXTURES, readFixture, toIds, type Expected } from '../python_fixtures.js';

const { strings, tokenizers } = readFixture<Expected>('expected.json');

describe.each(Object.entries(tokenizers))('%s, as transformers has it', (kind, expected) => {
  const tokenizer = openTokenizer(join(FIXTURES, kind));

  test('ids of every string', async () => {
    const ids = await Promise.all(strings.map(async (text) => tokenizer.encode(text)));
    const found = strings.map((text, i) => [text, ids[i]]);
    expect(found).toEqual(strings.map((text, i) => [text, toIds(expected.ids[i])]));
  });

  test('ids with the tokens that stand around a text', async () => {
    const asked = strings.slice(0, expected.with_special.length);
    const ids = await Promise.all(asked.map(async (text) => tokenizer.encode(text, { addSpecial: true })));
    expect(ids).toEqual(expected.with_special.map(toIds));
  });

  test('texts of ids, with and without special tokens', () => {
    const ids = expected.ids.map(toIds);
    const decoded = strings.map((text, i) => expected.decoded[i] ?? text);
    expect(ids.map((each) => tokenizer.decode(each))).toEqual(decoded);
    const words = ids.map((each) => tokenizer.decode(each, { skipSpecial: true }));
    expect(words).toEqual(decoded.map((text, i) => expected.skipped[i] ?? text));
  });

  test('ids in no order, bytes that are no character, ids beyond the vocabulary, and no ids', () => {
    const found = expected.loose.map(([short]) => {
      const ids = toIds(short);
      return [short, tokenizer.decode(ids), tokenizer.decode(ids, { skipSpecial: true })];
    });
    expect(found).toEqual(expected.loose);
    expect(tokenizer.decode([])).toBe('');
  });

  test('its size and its special tokens', () => {
    expect(tokenizer.size).toBe(expected.size);
    expect(tokenizer.special).toEqual(expected.special);
  });
});

test('the fixtures hold what they are for', () => {
  expect(strings).toHaveLength(500);
  expect(Object.keys(tokenizers)).toEqual(['gpt2', 'llama3', 'qwen2', 'llama2', 'metaspace', 'unigram', 'wordpiece']);
});

test('a token by its words; one that does not exist', () => {
  const tokenizer = openTokenizer(join(FIXTURES, 'llama2'));
  expect(tokenizer.id('</s>')).toBe(2);
  expect(() => tokenizer.id('<nothing>')).toThrow('the tokenizer has no token "<nothing>"');
});

test('an answer ends at the eos_token by default', () => {
  const folder = join(FIXTURES, 'gpt2');
  const tokenizer = openTokenizer(folder);
  expect(endTokens(folder, tokenizer)).toEqual([tokenizer.id('<|im_end|>')]);
});
