import { describe, expect, it } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import {
  packPrompts,
  packSequences,
  PADDING,
  promptColumns,
  roundUp,
} from '../../../src/train/policies/tokens/batch.js';

const prompt = (...ids: number[]) => ({ ids });
const asked = (...ids: number[]) => ({ tokens: { ids } });
const answer = (...ids: number[]) => ({ ids: Int32Array.from(ids) });
const numbers = (array: BigInt64Array): number[] => [...array].map(Number);

describe('laying out a batch', () => {
  it('rounds columns up to few sizes; the last token of a prompt is no column of it', () => {
    expect([0, 1, 4, 5, 9, 37, 61, 64].map(roundUp)).toEqual([4, 4, 4, 8, 12, 40, 64, 64]);
    expect(promptColumns([prompt(1, 2, 3, 4, 5), prompt(1)])).toBe(4);
    expect(promptColumns([prompt(1, 2, 3, 4, 5, 6)])).toBe(8);
  });

  it('has few sizes for long answers, of which at most an eighth is padding', () => {
    expect([65, 72, 100, 128, 129, 1000, 1025, 2048].map(roundUp)).toEqual([72, 72, 104, 128, 144, 1024, 1152, 2048]);
    const sizes = Array.from({ length: 4096 }, (_, i) => i + 1);
    expect(new Set(sizes.map(roundUp)).size).toBe(64);
    const padding = (size: number): number => roundUp(size) - size;
    expect(sizes.filter((size) => padding(size) < 0 || padding(size) >= Math.max(4, size / 8))).toEqual([]);
    expect(sizes.filter((size) => padding(roundUp(size)) !== 0)).toEqual([]);
  });

  it('pads prompts on the left and rows without a prompt whole', () => {
    const { prompt_ids, prompt_padding } = packPrompts([prompt(7, 8, 9), prompt(5)], 3, 4);
    expect(numbers(prompt_ids)).toEqual([0, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    const p = Math.fround(PADDING);
    expect([...prompt_padding]).toEqual([p, p, 0, 0, p, p, p, p, p, p, p, p]);
  });

  it('shifts answers by the last token of their prompt, and targets are the answers themselves', () => {
    const shape = { prompts: 2, answersPerPrompt: 2, promptColumns: 4, answerColumns: 4 };
    const packed = packSequences([{ prompt: asked(7, 8, 9), answers: [answer(1, 2, 3), answer(4)] }], shape);
    expect(numbers(packed.prompt_ids)).toEqual([0, 0, 7, 8, 0, 0, 0, 0]);
    expect(numbers(packed.answer_ids)).toEqual([9, 1, 2, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expect(numbers(packed.targets)).toEqual([1, 2, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
  });

  it('rejects what does not fit', () => {
    const shape = { prompts: 1, answersPerPrompt: 1, promptColumns: 4, answerColumns: 4 };
    expect(() => packPrompts([prompt(1, 2, 3, 4, 5, 6)], 1, 4)).toThrow(InternalError);
    expect(() => packSequences([{ prompt: asked(1, 2), answers: [answer(1, 2, 3, 4, 5)] }], shape)).toThrow(
      InternalError,
    );
    expect(() => packSequences([{ prompt: asked(1, 2), answers: [answer(1), answer(2)] }], shape)).toThrow(
      InternalError,
    );
    expect(() => packSequences([{ prompt: asked(), answers: [answer(1)] }], shape)).toThrow(InternalError);
  });
});
