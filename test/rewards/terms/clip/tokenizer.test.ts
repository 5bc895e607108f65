import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError, ConfigError } from '../../../../src/core/errors.js';
import { ClipTokenizer } from '../../../../src/rewards/terms/clip/tokenizer.js';
import { testFolders } from '../../../support/folder.js';
import { fixture, tinyClip } from './pictures.js';

const newFolder = testFolders('clip');

interface TokenCase {
  readonly prompt: string;
  readonly ids: readonly number[];
  readonly mask: readonly number[];
}
interface TokenizerFile {
  readonly model: { readonly vocab: Readonly<Record<string, number>>; readonly merges: readonly [string, string][] };
}

const CONTEXT = 20;

function folderWith(files: Readonly<Record<string, unknown>>): string {
  const folder = newFolder();
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return folder;
}

describe('the CLIP tokenizer', () => {
  const { model } = JSON.parse(readFileSync(join(tinyClip, 'tokenizer.json'), 'utf8')) as TokenizerFile;
  const cases = fixture<readonly TokenCase[]>('tokens.json');
  const lines = model.merges.map((pair) => pair.join(' '));
  const asFiles = {
    'tokenizer.json': tinyClip,
    'tokenizer.json with merges as strings': folderWith({
      'tokenizer.json': { model: { ...model, merges: lines } },
    }),
    'vocab.json and merges.txt': folderWith({
      'vocab.json': model.vocab,
      'merges.txt': `#version: 0.2\n${lines.join('\n')}\n`,
    }),
  };

  describe.each(Object.entries(asFiles))('read from %s', (_name, folder) => {
    const tokenizer = ClipTokenizer.read(folder, CONTEXT);
    it.each(cases)("gives transformers' ids of $prompt", async ({ prompt, ids, mask }) => {
      const tokens = await tokenizer.encode(prompt);
      expect(Array.from(tokens.ids, Number)).toEqual(ids);
      expect(Array.from(tokens.mask, Number)).toEqual(mask);
    });
  });

  it('keeps the end of a text that is cut', async () => {
    const tokenizer = ClipTokenizer.read(tinyClip, 77);
    const [start, end] = [model.vocab['<|startoftext|>'], model.vocab['<|endoftext|>']];
    for (const [words, ends] of [
      [75, 1],
      [76, 1],
      [1000, 1],
      [74, 2],
    ] as const) {
      const { ids, mask } = await tokenizer.encode('the '.repeat(words));
      expect(ids).toHaveLength(77);
      expect(Number(ids[0])).toBe(start);
      expect(Number(ids[76])).toBe(end);
      expect(ids.filter((id) => Number(id) === end)).toHaveLength(ends);
      expect(mask.filter((one) => one === 1n)).toHaveLength(Math.min(words, 75) + 2);
    }
  });

  it('takes half a surrogate pair for an unknown letter', async () => {
    const tokenizer = ClipTokenizer.read(tinyClip, CONTEXT);
    expect(await tokenizer.encode('a \ud800 b')).toEqual(await tokenizer.encode('a \ufffd b'));
  });

  it.each([
    ['another kind of tokenizer', { 'tokenizer.json': { model: { type: 'Unigram', vocab: [] } } }, /end in <\/w>/],
    [
      'ids that are no numbers',
      { 'tokenizer.json': { model: { ...model, end_of_word_suffix: '</w>', vocab: { a: 'b' } } } },
      /vocabulary/,
    ],
    [
      'merges of three',
      { 'tokenizer.json': { model: { ...model, end_of_word_suffix: '</w>', merges: ['a b c'] } } },
      /merges/,
    ],
    [
      'a merge whose token the vocabulary lacks',
      { 'tokenizer.json': { model: { ...model, merges: [...model.merges, ['the</w>', 'q']] } } },
      /cannot be read: .*out of vocabulary/,
      CheckpointError,
    ],
    ['no marks', { 'vocab.json': { a: 0 }, 'merges.txt': '' }, /<\|startoftext\|>/],
    ['no merges', { 'vocab.json': model.vocab }, /merges\.txt/],
    ['nothing', {}, /no tokenizer\.json/],
  ])('rejects a folder with %s', (_name, files, message, kind: new (...args: never[]) => Error = ConfigError) => {
    const folder = folderWith(files);
    expect(() => ClipTokenizer.read(folder, CONTEXT)).toThrow(kind);
    expect(() => ClipTokenizer.read(folder, CONTEXT)).toThrow(message);
  });
});
