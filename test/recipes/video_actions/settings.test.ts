import { describe, expect, it } from 'vitest';
import { problemsOf, smallSettings } from './small.js';

describe('settings of video_actions', () => {
  it('are whole with few words', () => {
    expect(problemsOf({})).toEqual([]);
    const { data, policy } = smallSettings();
    expect(data.frames).toEqual({ min: 4, max: 8, interval: 2 });
    expect(policy.train).toEqual({ mm_vision: false, mm_mlp: true, mm_llm: true });
  });

  it.each([
    [
      { data: { train: [], validation: [], tiny: {}, frames: { min: 9 } } },
      /^data\.frames\.min: found 9; allowed: at most data\.frames\.max/,
    ],
    [{ prompt: { chat: false, system: 'Be brief.' } }, /^prompt\.system: found with prompt\.chat false/],
    [{ prompt: { chat: false, variables: { a: 1 } } }, /^prompt\.variables: found with prompt\.chat false/],
    [{ data: { train: [], validation: [], tiny: null } }, /^policy\.tokenizer: found null with policy\.init/],
    [{ reward: { mode: 'ocr' } }, /^reward\.mode: 'ocr' looks at an image, but the answers/],
  ])('%j is refused', (changes, message) => {
    const problems = problemsOf(changes);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(message);
  });
});
