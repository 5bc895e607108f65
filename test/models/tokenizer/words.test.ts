import { describe, expect, it } from 'vitest';
import { CheckpointError, DataError } from '../../../src/core/errors.js';
import { WordTokenizer, wordTokenizerJson } from '../../../src/models/tokenizer/words.js';

const codes = ['<code 0>', '<code 1>', '<code 2>'];
const json = wordTokenizerJson(['<|go|>', '<|go|>on', '<|end|>'], ['red', 'circle', 'red', '<|go|>'], codes);

interface HuggingFaceTokenizer {
  added_tokens: { id: number; content: string; special: boolean }[];
  pre_tokenizer: { type: string };
  model: { type: string; vocab: Record<string, number>; unk_token: string };
}

describe('word tokenizer', () => {
  const tokenizer = new WordTokenizer(json, 'test');

  it('numbers unknown, special tokens, words once, then the last in order', () => {
    expect(tokenizer.id('<|unk|>')).toBe(0);
    expect(tokenizer.id('<|go|>')).toBe(1);
    expect(tokenizer.id('red')).toBe(4);
    expect(tokenizer.id('circle')).toBe(5);
    expect(codes.map((code) => tokenizer.id(code))).toEqual([6, 7, 8]);
    expect(tokenizer.size).toBe(9);
  });

  it('takes added tokens first, without white space around them, the longer one where two begin together', () => {
    expect(tokenizer.encode('red<|go|>oncircle')).toEqual([4, 2, 5]);
    expect(tokenizer.encode('<|go|><|end|> \n red')).toEqual([1, 3, 4]);
    expect(tokenizer.encode('red <code 1><|go|')).toEqual([4, 7, 0]);
    expect(tokenizer.encode('  ')).toEqual([]);
  });

  it('gives words that it does not know one token, and decodes back', () => {
    expect(tokenizer.encode('green circle')).toEqual([0, 5]);
    expect(tokenizer.decode([4, 5, 3])).toBe('red circle <|end|>');
    expect(tokenizer.decode([99])).toBe('<|unk|>');
    expect(() => tokenizer.id('green')).toThrow(DataError);
  });

  it("is a Hugging Face tokenizer.json: word level, and added tokens have the vocabulary's ids", () => {
    const { added_tokens, model, pre_tokenizer } = JSON.parse(json) as HuggingFaceTokenizer;
    expect(model.type).toBe('WordLevel');
    expect(pre_tokenizer.type).toBe('WhitespaceSplit');
    expect(model.vocab[model.unk_token]).toBe(0);
    // an added token outside the vocabulary would be given the next free number by that library
    for (const { id, content } of added_tokens) expect(model.vocab[content]).toBe(id);
    expect(Object.values(model.vocab).sort((a, b) => a - b)).toEqual(Array.from({ length: 9 }, (_, i) => i));
    const again = new WordTokenizer(tokenizer.json, 'again');
    expect(again.encode('red <|go|>on circle x')).toEqual(tokenizer.encode('red <|go|>on circle x'));
    expect(again.size).toBe(tokenizer.size);
  });

  it('rejects what it cannot read, and says what it is', () => {
    const bpe = JSON.stringify({ model: { type: 'BPE', vocab: {} } });
    expect(() => new WordTokenizer(bpe, 'file')).toThrow(/a BPE tokenizer is not supported/);
    const noUnknown = JSON.stringify({ model: { type: 'WordLevel', vocab: { a: 0 } } });
    expect(() => new WordTokenizer(noUnknown, 'file')).toThrow(/no token for unknown words/);
    expect(() => new WordTokenizer('{', 'file')).toThrow(CheckpointError);
    expect(() => WordTokenizer.read('/nowhere/tokenizer.json')).toThrow(CheckpointError);
  });
});
