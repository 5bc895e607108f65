import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { CheckpointError, DataError } from '../../../src/core/errors.js';
import { promptText } from '../../../src/models/chat/template.js';
import { endTokens, openTokenizer } from '../../../src/models/tokenizer/open.js';
import { openChatTemplate, tokenCount } from '../../../src/models/tokenizer/texts.js';
import { WordTokenizer, wordTokenizerJson } from '../../../src/models/tokenizer/words.js';
import { testFolders } from '../../support/folder.js';
import { FIXTURES } from '../python_fixtures.js';

const newFolder = testFolders('tokenizers');

/** A copy of a fixture with files of its own; null takes one away. */
function folder(kind: string | null, files: Readonly<Record<string, string | object | null>> = {}): string {
  const path = newFolder();
  if (kind !== null) cpSync(join(FIXTURES, kind), path, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    if (content === null) rmSync(join(path, name));
    else writeFileSync(join(path, name), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return path;
}

describe('which tokenizer', () => {
  test('words are read as words', () => {
    const opened = openTokenizer(folder(null, { 'tokenizer.json': wordTokenizerJson(['<end>'], ['a', 'b']) }));
    expect(opened).toBeInstanceOf(WordTokenizer);
    expect(opened.decode(opened.encode('a b <end>') as number[], { skipSpecial: true })).toBe('a b');
  });

  test('the same words through the library have the same ids', async () => {
    const json = JSON.parse(wordTokenizerJson(['<end>'], ['a', 'b'])) as object;
    const words = new WordTokenizer(JSON.stringify(json), 'words');
    const native = openTokenizer(folder(null, { 'tokenizer.json': { ...json, normalizer: { type: 'NFC' } } }));
    expect(native).not.toBeInstanceOf(WordTokenizer);
    const ids = words.encode('b a c<end> a');
    expect(await native.encode('b a c<end> a')).toEqual(ids);
    expect(native.decode(ids)).toBe(words.decode(ids));
  });

  test('a checkpoint takes every file along', async () => {
    const from = folder('qwen2', { 'chat_template.jinja': '{{ messages[0].content }}' });
    const opened = openTokenizer(from);
    const to = folder(null, opened.files);
    expect(Object.keys(opened.files).sort()).toEqual([
      'chat_template.jinja',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
    const again = openTokenizer(to);
    expect(await again.encode('a <left> whole')).toEqual(await opened.encode('a <left> whole'));
    expect(openChatTemplate(to, again)?.source).toBe('{{ messages[0].content }}');
  });
});

describe('folders that cannot be used', () => {
  const json = (content: string | object): string => folder(null, { 'tokenizer.json': content });
  const config = (content: object): string => folder('gpt2', { 'tokenizer_config.json': content });
  const added = { added_tokens: [{ id: 3 }], model: { type: 'BPE', vocab: {}, merges: [] } };
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ['an empty folder', folder(null), /there is no tokenizer; allowed: tokenizer\.json/],
    [
      'other forms',
      folder(null, { 'tokenizer.model': '', 'vocab.json': '{}' }),
      /found: tokenizer\.model, vocab\.json$/,
    ],
    ['no JSON', json('{'), /is not JSON/],
    ['a kind that the library lacks', json({ model: { type: 'Letters', vocab: {} } }), /cannot be read: /],
    ['added tokens without words', json(added), /added_tokens\.0\.content/],
    ['settings of another form', config({ added_tokens_decoder: 3 }), /added_tokens_decoder/],
    ['special tokens that are split', config({ split_special_tokens: true }), /split_special_tokens is not supported/],
  ];
  test.each(cases)('%s', (_, path, message) => {
    expect(() => openTokenizer(path)).toThrow(CheckpointError);
    expect(() => openTokenizer(path)).toThrow(message);
  });
});

describe('chat templates', () => {
  const source = (files: Readonly<Record<string, string | object | null>>): string | undefined => {
    const path = folder('gpt2', files);
    return openChatTemplate(path, openTokenizer(path))?.source;
  };

  test('a file comes before the config, one named default before none', () => {
    expect(source({ 'chat_template.jinja': 'file', 'tokenizer_config.json': { chat_template: 'config' } })).toBe(
      'file',
    );
    expect(source({ 'tokenizer_config.json': { chat_template: 'config' } })).toBe('config');
    expect(source({ 'chat_template.json': { chat_template: 'processor' } })).toBe('processor');
    const several = [
      { name: 'rag', template: 'r' },
      { name: 'default', template: 'd' },
    ];
    expect(source({ 'tokenizer_config.json': { chat_template: several } })).toBe('d');
    expect(source({})).toBeUndefined();
    expect(() => source({ 'tokenizer_config.json': { chat_template: several.slice(0, 1) } })).toThrow(
      /has templates named rag, but none named default/,
    );
  });

  test('one that cannot be parsed', () => {
    expect(() => source({ 'chat_template.jinja': '{% if %}' })).toThrow(DataError);
    expect(() => source({ 'chat_template.jinja': '{% raw %}x{% endraw %}' })).toThrow(
      /the chat template cannot be parsed: Unknown statement type: raw/,
    );
  });

  test('messages without one; plain text', async () => {
    const prompt = [{ role: 'user', content: 'x' }];
    await expect(promptText({ template: null }, prompt)).rejects.toThrow(/the model has no chat template/);
    expect(await promptText({ template: null }, 'x')).toEqual({ text: 'x', addSpecial: true });
  });
});

describe('where an answer ends', () => {
  const ends = (kind: string, files: Readonly<Record<string, string | object | null>>): readonly number[] => {
    const path = folder(kind, files);
    return endTokens(path, openTokenizer(path));
  };

  test('at any of several', () => {
    expect(ends('llama2', { 'generation_config.json': { eos_token_id: [7, 9] } })).toEqual([7, 9, 2]);
    expect(ends('llama2', { 'generation_config.json': { eos_token_id: 2 } })).toEqual([2]);
    expect(ends('llama2', { 'generation_config.json': { temperature: 0.6 } })).toEqual([2]);
  });

  test('if nothing says so, or wrongly', () => {
    const nothing = { 'special_tokens_map.json': null };
    expect(() => ends('llama2', nothing)).toThrow(/no file names the token that ends an answer/);
    expect(ends('llama2', { ...nothing, 'generation_config.json': { eos_token_id: 5 } })).toEqual([5]);
    expect(() => ends('llama2', { 'generation_config.json': { eos_token_id: 'x' } })).toThrow(
      /neither an id nor a list/,
    );
  });
});

describe('how many tokens there are', () => {
  test.each(['gpt2', 'llama2', 'llama3', 'metaspace', 'qwen2', 'unigram', 'wordpiece'])('in %s', (kind) => {
    const json = JSON.parse(readFileSync(join(FIXTURES, kind, 'tokenizer.json'), 'utf8')) as unknown;
    const { size } = openTokenizer(join(FIXTURES, kind));
    expect(tokenCount(json)).toBeLessThanOrEqual(size);
    expect(tokenCount(json)).toBeGreaterThan(size - 20);
  });

  test('counts what is added in the same file, and ids with gaps', () => {
    const vocab = { a: 0, b: 7 };
    expect(tokenCount({ model: { vocab } })).toBe(8);
    expect(tokenCount({ model: { vocab }, added_tokens: [{ id: 9 }] })).toBe(10);
    expect(
      tokenCount({
        model: {
          vocab: [
            ['a', -1],
            ['b', -2],
          ],
        },
      }),
    ).toBe(2);
  });

  test('is not known of other forms', () => {
    expect([tokenCount({ model: {} }), tokenCount(null)]).toEqual([null, null]);
  });
});
