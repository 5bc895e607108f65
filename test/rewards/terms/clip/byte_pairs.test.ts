import { Tokenizer as Native } from 'tokenizers';
import { describe, expect, it } from 'vitest';
import { clipTokenizerJson } from '../../../../src/rewards/terms/clip/byte_pairs.js';
import { ClipTokenizer } from '../../../../src/rewards/terms/clip/tokenizer.js';
import { captionVocabulary, drawCaption } from '../../../../src/data/tiny/words.js';

const captions = Array.from({ length: 2000 }, (_, i) => drawCaption(1, 'train', i)).flatMap(({ prompt, expected }) => [
  prompt,
  expected,
]);
const CONTEXT = 24;

async function content(tokenizer: ClipTokenizer, text: string): Promise<number[]> {
  const { ids, mask } = await tokenizer.encode(text);
  const length = mask.reduce((sum, one) => sum + Number(one), 0);
  return [...ids.subarray(1, length - 1)].map(Number);
}

describe('byte pairs that are learned from captions', () => {
  it('make every word of the captions one token of its own', async () => {
    const tokenizer = ClipTokenizer.parse(clipTokenizerJson(captions, 4096), CONTEXT, 'tokenizer.json');
    const ids = await Promise.all(captionVocabulary().map((word) => content(tokenizer, word)));
    expect(ids.every((one) => one.length === 1)).toBe(true);
    expect(new Set(ids.flat()).size).toBe(captionVocabulary().length);
    const apart = await Promise.all(['a', 'crimson', 'orb'].map((word) => content(tokenizer, word)));
    expect(await content(tokenizer, 'a Crimson orb')).toEqual(apart.flat());
  });

  it('are read by the library of Hugging Face as they are read here, start and end included', async () => {
    const json = clipTokenizerJson(captions, 4096);
    const tokenizer = ClipTokenizer.parse(json, CONTEXT, 'tokenizer.json');
    for (const text of ['a Crimson  orb', 'Žlutý 猫!', 'one<|endoftext|>two']) {
      const { ids, mask } = await tokenizer.encode(text);
      const length = mask.reduce((sum, one) => sum + Number(one), 0);
      const encoding = await Native.fromString(json).encode(text, null, { addSpecialTokens: true });
      expect(encoding.getIds()).toEqual([...ids.subarray(0, length)].map(Number));
    }
  });

  it('read any other text, too, byte by byte', async () => {
    const tokenizer = ClipTokenizer.parse(clipTokenizerJson(['a cat'], 4096), CONTEXT, 'tokenizer.json');
    const { end } = tokenizer.marks;
    const ids = await content(tokenizer, 'Žluťoučký 猫!');
    expect(ids.length).toBeGreaterThan(10);
    expect(ids).not.toContain(end);
    expect(Math.max(...ids)).toBeLessThan(tokenizer.size);
  });

  it('are as many as they may be, the most frequent first', () => {
    const { model } = JSON.parse(clipTokenizerJson(['hat hat hot', 'hat'], 1)) as { model: { merges: unknown } };
    expect(model.merges).toEqual([['a', 't</w>']]);
  });

  it('are counted by what is left of them, where they overlap', () => {
    const { model } = JSON.parse(clipTokenizerJson(['aaaa aaaa ab'], 9)) as { model: { merges: unknown } };
    expect(model.merges).toEqual([
      ['a', 'a'],
      ['a', 'a</w>'],
      ['aa', 'aa</w>'],
      ['a', 'b</w>'],
    ]);
  });
});
