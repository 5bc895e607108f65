import { describe, expect, it } from 'vitest';
import { problemsOf } from './small.js';

describe('rewards of answers in words', () => {
  it('look at no image', () => {
    const [problem] = problemsOf({ reward: { mode: 'viescore', endpoint: 'embedded' } });
    expect(problem).toMatch(
      /^reward\.mode: 'viescore' reads an image, but the answers of task 'text_answers' are words; allowed: /,
    );
    expect(problem).toMatch(/format_accuracy.*word_overlap/);
    expect(problem).not.toContain('align_quality');
    const terms = [
      { name: 'word_overlap', weight: 0.5 },
      { name: 'clip', weight: 0.5, model: 'm' },
    ];
    expect(problemsOf({ reward: { mode: null, terms } })).toEqual([
      expect.stringMatching(/^reward\.terms: 'clip' reads an image/),
    ]);
  });
});

describe('thoughts that rewards do not read', () => {
  it('are not looked for by one', () => {
    const thinking = (open: string, mode: string) =>
      problemsOf({ policy: { thinking: { open, close: '</think>' } }, reward: { mode } });
    expect(thinking('<think>', 'format_accuracy')).toEqual([
      expect.stringMatching(/^policy\.thinking: found with the term 'format_accuracy'/),
    ]);
    expect(thinking('<think>', 'word_overlap')).toEqual([]);
    expect(thinking('<thought>', 'format_accuracy')).toEqual([]);
  });
});

describe('prompts', () => {
  it.each([
    ['system', 'Be brief.'],
    ['examples', [{ prompt: 'a', answer: 'b' }]],
    ['variables', { enable_thinking: false }],
  ])('have %s in chat alone', (field, value) => {
    expect(problemsOf({ prompt: { chat: false, [field]: value } })).toEqual([
      `prompt.${field}: found with prompt.chat false; allowed: only with prompt.chat true`,
    ]);
    expect(problemsOf({ prompt: { [field]: value } })).toEqual([]);
    expect(problemsOf({ prompt: { chat: false } })).toEqual([]);
  });
});

describe('supervised training', () => {
  const algorithm = { type: 'sft' };

  it('needs labels', () => {
    expect(problemsOf({ algorithm })).toEqual([
      expect.stringMatching(/^data\.columns\.expected: found null with supervised/),
    ]);
    const columns = { expected: 'answer' };
    expect(problemsOf({ algorithm, data: { columns } })).toEqual([]);
  });
});

describe('a model from random weights', () => {
  it('needs somebody\u2019s words', () => {
    expect(problemsOf({ data: { tiny: null } })).toEqual([
      expect.stringMatching(/^policy\.tokenizer: found null with policy\.init/),
    ]);
    expect(problemsOf({ data: { tiny: null }, policy: { tokenizer: 'folder' } })).toEqual([]);
    expect(problemsOf({ data: { tiny: null }, policy: { init: null, model: 'folder' } })).toEqual([]);
  });
});
