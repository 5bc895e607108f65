import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import type { Row } from '../../../src/data/rows.js';
import { questionOf } from '../../../src/recipes/text_answers/task.js';
import { splitThought, type Question } from '../../../src/recipes/shared/words/task.js';
import { smallSettings } from './small.js';

interface Asking {
  readonly prompt?: Readonly<Record<string, unknown>>;
  readonly columns?: Readonly<Record<string, unknown>>;
}

function question(row: Row, { prompt = {}, columns = {} }: Asking = {}): Question {
  const settings = smallSettings({ prompt, data: { columns } });
  return questionOf(row, settings, 'rows.jsonl:7');
}

const turn = (role: string, content: unknown): object => ({ role, content });

describe('what a row asks', () => {
  it('is its words, in a conversation of one turn', () => {
    expect(question({ prompt: 'How many?' })).toEqual({
      prompt: [{ role: 'user', content: 'How many?' }],
      instruction: 'How many?',
    });
  });

  it('is a conversation whose last words are the instruction, parts of text among them', () => {
    const turns = [
      turn('user', 'Hi'),
      turn('assistant', 'Yes?'),
      turn('user', [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ]),
    ];
    const { prompt: asked, instruction, expected } = question({ prompt: turns });
    expect(asked).toEqual(turns);
    expect(instruction).toBe('ab');
    expect(expected).toBeUndefined();
  });

  it('has the last turn as its label where that is the assistant\u2019s, and no column says otherwise', () => {
    const turns = [turn('user', 'Hi'), turn('assistant', 'Hello.')];
    expect(question({ prompt: turns })).toEqual({ prompt: [turns[0]], instruction: 'Hi', expected: 'Hello.' });
    const columns = { expected: 'label' };
    expect(question({ prompt: turns, label: 'Hey.' }, { columns })).toMatchObject({ expected: 'Hey.' });
    expect(question({ prompt: turns }, { columns: { expected: 'prompt' } })).toEqual(question({ prompt: turns }));
  });

  it('takes other columns, and words around them', () => {
    const row = { question: 'Why?', n: 3, tags: ['a'], answer: 'So.' };
    const columns = { prompt: 'question', expected: 'answer' };
    expect(question(row, { columns })).toMatchObject({ instruction: 'Why?', expected: 'So.' });
    const template = '{question} Say {n} of {tags}, and {0} {not closed.';
    expect(question(row, { prompt: { template } }).instruction).toBe('Why? Say 3 of ["a"], and {0} {not closed.');
    expect(question({ q: 'Why?', input: null }, { prompt: { template: '{q} {input}' } }).instruction).toBe('Why? ');
  });

  it.each([
    ['a number', 42, '42'],
    ['true', true, 'true'],
    ['a turn', [turn('assistant', 'So.')], 'So.'],
  ])('takes %s as a label', (_, expected, words) => {
    expect(question({ prompt: 'p', expected }, { columns: { expected: 'expected' } }).expected).toBe(words);
  });

  it('comes after the system message and the examples', () => {
    const prompt = { system: 'Be brief.', examples: [{ prompt: 'One?', answer: 'Yes.' }] };
    expect(question({ prompt: 'Two?' }, { prompt }).prompt).toEqual([
      turn('system', 'Be brief.'),
      turn('user', 'One?'),
      turn('assistant', 'Yes.'),
      turn('user', 'Two?'),
    ]);
  });
});

describe('a row that asks nothing that can be asked', () => {
  const label = { columns: { expected: 'expected' } };
  const cases: readonly (readonly [string, Row, Asking, RegExp])[] = [
    ['without the column', { question: 'Why?', id: 3 }, {}, /no column 'prompt'; found: question, id/],
    ['without a column of the template', { prompt: 'Why?' }, { prompt: { template: '{q}' } }, /no column 'q'/],
    ['with a number', { prompt: 3 }, {}, /found 3 in column 'prompt'; allowed: text, or a list of \{role, content\}/],
    ['with no turn', { prompt: [] }, {}, /found \[\] in column 'prompt'/],
    [
      'with a turn of an image',
      { prompt: [turn('user', [{ type: 'image', url: 'x' }])] },
      {},
      /found \[\{"role":"user".*…? in column/,
    ],
    [
      'whose last turn is the system\u2019s',
      { prompt: [turn('system', 'x')] },
      {},
      /the last turn of the conversation is 'system'; allowed: 'user'/,
    ],
    [
      'with a label alone',
      { prompt: [turn('assistant', 'x')] },
      {},
      /last turn of the conversation is 'missing'; allowed: 'user'/,
    ],
    [
      'with two system messages',
      { prompt: [turn('system', 'a'), turn('user', 'b')] },
      { prompt: { system: 'c' } },
      /a system message in the row and prompt\.system/,
    ],
    [
      'with turns without chat',
      { prompt: [turn('user', 'a'), turn('assistant', 'b'), turn('user', 'c')] },
      { prompt: { chat: false } },
      /a conversation of 3 turns with prompt\.chat false/,
    ],
    [
      'with a label that is an object',
      { prompt: 'p', expected: { a: 1 } },
      label,
      /found \{"a":1\} in column 'expected'/,
    ],
  ];
  it.each(cases)('%s', (_, row, asking, message) => {
    const asked = (): unknown => question(row, asking);
    expect(asked).toThrow(DataError);
    expect(asked).toThrow(message);
    expect(asked).toThrow(expect.objectContaining({ where: 'rows.jsonl:7' }) as Error);
  });
});

describe('a row that shows more than words', () => {
  const image = { bytes: new Uint8Array(3_000_000), path: 'a.png' };
  it.each<[string, Row]>([
    ['a list of paths', { prompt: 'What is it?', images: ['a.png'] }],
    ['bytes', { prompt: 'What is it?', image: image }],
    ['a video', { prompt: 'What is it?', videos: ['a.mp4'] }],
    ['a placeholder', { prompt: [turn('user', 'What is it?\n<image>')] }],
    ["a model's own placeholder", { prompt: 'See <|vision_start|><|image_pad|><|vision_end|> here' }],
  ])('is rejected in one short message: %s', (_, row) => {
    expect(() => question(row)).toThrow(DataError);
    expect(() => question(row)).toThrow(/allowed: only words/);
    expect(() => question(row)).not.toThrow(/.{400}/s);
  });

  it.each<[string, Row]>([
    ['empty columns', { prompt: 'a', images: [], image: null, video: '' }],
    ['words about a tag', { prompt: 'What does the <image> tag do in SVG?' }],
    ['a column about images', { prompt: 'a', image_count: 3, images: 3 }],
  ])('is asked with %s', (_, row) => {
    expect(question(row).instruction).toBe(row['prompt']);
  });
});

describe('numbers', () => {
  it.each([NaN, Infinity, -Infinity])('%d is no label and no part of a prompt', (value) => {
    const columns = { expected: 'label' };
    expect(() => question({ prompt: 'a', label: value }, { columns })).toThrow(DataError);
    expect(() => question({ prompt: 'a', label: value }, { columns })).toThrow(/column 'label'/);
    expect(() => question({ n: value }, { prompt: { template: 'Is it {n}?' } })).toThrow(/column 'n'/);
    expect(() => question({ n: { price: [value] } }, { prompt: { template: 'Is it {n}?' } })).toThrow(DataError);
  });
});

describe('what was written', () => {
  const thinking = { open: '<think>', close: '</think>' };
  it.each([
    ['a <think>b</think> c', null, 'a <think>b</think> c'],
    [' words \n', undefined, 'words'],
  ])('%j without thinking is all an answer', (text, thought, answer) => {
    expect(splitThought(text, null)).toEqual({ thought: thought ?? null, answer });
  });

  it.each([
    ['<think> so </think> 4 ', 'so', '4'],
    // A prompt may have opened it.
    ['so</think>4', 'so', '4'],
    ['<think>a</think>b<think>c</think>d', 'a</think>b<think>c', 'd'],
    ['<think>so it goes on', 'so it goes on', ''],
    ['4', null, '4'],
    ['before <think>a</think>', 'a', ''],
  ])('%j is cut at its tags', (text, thought, answer) => {
    expect(splitThought(text, thinking)).toEqual({ thought, answer });
  });

  it.each([
    ['so it goes on', 'so it goes on', ''],
    ['so</think>4', 'so', '4'],
    ['<think>again', 'again', ''],
  ])('%j is cut as what the prompt has opened', (text, thought, answer) => {
    expect(splitThought(text, thinking, true)).toEqual({ thought, answer });
  });
});
