import { describe, expect, it } from 'vitest';
import type { VideoQuestion } from '../../../src/data/conversations.js';
import { questionOf } from '../../../src/recipes/video_actions/task.js';

const question: VideoQuestion = {
  turns: [{ role: 'user', parts: [{ type: 'video' }, { type: 'text', text: '\nWhich parts?\n(1) red' }] }],
  expected: '<answer>(1) red</answer>',
  video: 'a.mp4',
  images: [],
  meta: { minFrames: null, maxFrames: null, segments: null },
};

describe('a question', () => {
  it('is a conversation for a chat template, with a system message if it has none', () => {
    expect(questionOf(question, { chat: true, system: 'Be brief.' }, 'here')).toEqual({
      prompt: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: [{ type: 'video' }, { type: 'text', text: '\nWhich parts?\n(1) red' }] },
      ],
      instruction: 'Which parts?\n(1) red',
      expected: '<answer>(1) red</answer>',
    });
    const own = { ...question, turns: [{ role: 'system', parts: [] } as const, ...question.turns] };
    expect(questionOf(own, { chat: true, system: 'Be brief.' }, 'here').prompt).toHaveLength(2);
  });

  it('is bare words with the marks of its video', () => {
    expect(questionOf(question, { chat: false, system: null }, 'here').prompt).toBe(
      '<|vision_start|><|video_pad|><|vision_end|>\nWhich parts?\n(1) red',
    );
  });

  it('has no place in bare words where it has several turns', () => {
    const long = { ...question, turns: [...question.turns, ...question.turns] };
    expect(() => questionOf(long, { chat: false, system: null }, 'here')).toThrow('a conversation of 2 turns');
  });
});
