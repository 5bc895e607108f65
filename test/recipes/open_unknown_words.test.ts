import { expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { HuggingFaceTokenizer } from '../../src/models/tokenizer/hugging_face.js';
import { WordTokenizer, wordTokenizerJson } from '../../src/models/tokenizer/words.js';
import { unknownWords, type Instructions } from '../../src/recipes/shared/words/vocabulary.js';

const json = wordTokenizerJson(['<|end|>'], ['make', 'the', 'circle', 'red']);
const tokenizer = new WordTokenizer(json, 'words');
const dataset = (...prompts: string[]): Instructions => ({
  name: 'rows.jsonl',
  length: prompts.length,
  at: (i) => prompts[i],
});

it('counts prompts with words that the vocabulary lacks, and names some', async () => {
  const found = await unknownWords(tokenizer, [dataset('make the circle red', 'make it teal', 'the teal circle')]);
  expect(found).toEqual([expect.stringMatching(/^rows\.jsonl: 2 of 3 prompts .* 'it', 'teal'; /)]);
});

it('rejects a dataset of which no word is known', async () => {
  const none = [dataset('make the circle red'), dataset('Mach den Kreis rot', 'bitte')];
  await expect(unknownWords(tokenizer, none)).rejects.toThrow(DataError);
  await expect(unknownWords(tokenizer, none)).rejects.toMatchObject({ where: 'rows.jsonl' });
});

it('reports nothing if all words are known, or all words have tokens', async () => {
  expect(await unknownWords(tokenizer, [dataset('make  the\ncircle red', '')])).toEqual([]);
  expect(await unknownWords({ unknown: null, encode: () => [0] }, [dataset('Kreis')])).toEqual([]);
});

it.each([
  ['WordLevel', json, 0],
  [
    'BPE with bytes',
    JSON.stringify({ version: '1.0', added_tokens: [], model: { type: 'BPE', vocab: { a: 0 }, merges: [] } }),
    null,
  ],
  [
    'Unigram',
    JSON.stringify({
      version: '1.0',
      added_tokens: [],
      model: {
        type: 'Unigram',
        unk_id: 1,
        vocab: [
          ['a', 0],
          ['?', 0],
        ],
      },
    }),
    1,
  ],
])('knows the unknown token of a %s tokenizer', (_, text, unknown) => {
  const parts = { json: text, own: [], special: { named: {}, added: [] }, cleanUp: false, files: {}, where: 'x' };
  expect(new HuggingFaceTokenizer(parts).unknown).toBe(unknown);
});
