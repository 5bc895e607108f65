import { expect, it } from 'vitest';
import { fuzzJudgeTexts } from './fuzz_judge_texts.js';

/** The test that no text misleads the readers of judges' answers, over this many; `atLeast` of them are read, and as many refused, by each. */
export function givesScoresOrAReason(texts: number, atLeast: number): void {
  it(`gives in-range scores of the asked number or a reason, the same each time, without chance and without throwing, over ${texts} texts`, () => {
    const found = fuzzJudgeTexts({ texts, seed: 'unit tests' });
    expect(found.failures).toEqual([]);
    expect(found.texts).toBe(texts);
    // Both outcomes have to occur, or the texts test nothing.
    for (const { scored, rejected } of Object.values(found.readers)) {
      expect(scored).toBeGreaterThan(atLeast);
      expect(rejected).toBeGreaterThan(atLeast);
    }
  });
}
