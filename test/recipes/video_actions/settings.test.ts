import { describe, expect, it } from 'vitest';
import { problemsOf } from './small.js';

describe('settings of video_actions', () => {
  it('of a policy at a training server show frames as images, and leave what is adapted to the server', () => {
    const served = (frames: object, policy: object = {}): string[] =>
      problemsOf({
        data: { train: [], validation: [], tiny: {}, frames },
        policy: {
          init: null,
          tokenizer: '/models/qwen',
          trainer: { type: 'tinker', base_model: 'qwen' },
          pixels: {},
          ...policy,
        },
      });
    expect(served({ as: 'images' })).toEqual([]);
    expect(served({})).toEqual([
      expect.stringMatching(
        /^data\.frames\.as: found 'video' with policy\.trainer 'tinker'.*allowed: 'images'/,
      ) as string,
    ]);
    expect(served({ as: 'images' }, { train: { mm_vision: true } })).toEqual([
      expect.stringMatching(/^policy\.train\.mm_vision: found true with policy\.trainer 'tinker'/) as string,
    ]);
    expect(served({ as: 'images' }, { tokenizer: null })).toEqual([
      expect.stringMatching(/^policy\.tokenizer: found null with policy\.trainer 'tinker'/) as string,
    ]);
  });

  it.each([
    [
      { data: { train: [], validation: [], tiny: {}, frames: { min: 9 } } },
      /^data\.frames\.min: found 9; allowed: at most data\.frames\.max/,
    ],
    [{ prompt: { chat: false, system: 'Be brief.' } }, /^prompt\.system: found with prompt\.chat false/],
    [{ prompt: { chat: false, variables: { a: 1 } } }, /^prompt\.variables: found with prompt\.chat false/],
    [{ data: { train: [], validation: [], tiny: null } }, /^policy\.tokenizer: found null with policy\.init/],
    [{ reward: { mode: 'ocr' } }, /^reward\.mode: 'ocr' reads an image, but the answers/],
  ])('%j is rejected', (changes, message) => {
    const problems = problemsOf(changes);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(message);
  });
});
