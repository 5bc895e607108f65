import { describe, expect, it } from 'vitest';
import { editDistance } from '../../../../src/core/nearest.js';
import { DataError } from '../../../../src/core/errors.js';
import {
  joinLines,
  normalizeText,
  similarity,
  targetOf,
  weightedConfidence,
} from '../../../../src/rewards/terms/ocr/similarity.js';

const reward = (instruction: string, ...lines: string[]): number =>
  similarity(targetOf(instruction, 'item'), joinLines(lines.map((text) => ({ text, confidence: 1 }))));

describe('the similarity of what was read', () => {
  it.each([
    ['exact', 'a sign that says "HelloWorld"', ['HelloWorld'], 1],
    ['case and spaces do not count', 'a sign that says "Hello World"', ['HELLO', ' world '], 1],
    ['one deleted letter of ten', 'a sign that says "HelloWorld"', ['HelloWrld'], 0.9],
    ['a line break inside one line', 'a sign that says "HelloWorld"', ['HELLO\nWORLD'], 1],
    ['words in the other order', 'a sign that says "Hello World"', ['World Hello'], 0.2],
    ['one wrong letter and long extra text', 'a sign that says "Hello"', ['Hallo and very much more besides'], 0],
    ['a target of one letter inside any text', 'the letter "e"', ['some other text'], 1],
    ['extra text around the target', 'a sign that says "Hello"', ['xx', 'say hello there'], 1],
    ['nothing read', 'a sign that says "Hello"', [], 0],
    ['something else of the same length', 'a sign that says "abcde"', ['vwxyz'], 0],
    ['curly quotes', 'a sign that says \u201CHello\u201D', ['hello'], 1],
    ['low-high quotes', 'ein Schild \u201EHallo\u201C', ['hallo'], 1],
    ['only the first quotation counts', 'a sign "one" beside "two"', ['one'], 1],
    ['full-width forms are folded', 'a sign that says "ABC"', ['\uFF21\uFF22\uFF23'], 1],
    ['all kinds of whitespace go', 'a sign that says "a\u00A0b\tc"', ['a b\u3000c'], 1],
    ['an apostrophe is a letter', `a sign that says "don't"`, [`don't`], 1],
  ])('%s', (_, instruction, lines, expected) => {
    expect(reward(instruction, ...lines)).toBeCloseTo(expected, 12);
  });

  it.each([
    ['a sign that says Hello'],
    ["a sign that says 'Hello'"],
    ['a sign that says "Hello'],
    ['a sign ""'],
    ['a sign " \t"'],
  ])('rejects a prompt without a text: %s', (instruction) => {
    expect(() => targetOf(instruction, '5/12/3')).toThrow(DataError);
    expect(() => targetOf(instruction, '5/12/3')).toThrow(expect.objectContaining({ where: '5/12/3' }) as Error);
  });

  it('stays within 0 and 1 and agrees with the plain formula whatever is read', () => {
    let state = 7;
    const letter = (): string => ['a', '\u{1F600}'][(state = (state * 48_271) % 2_147_483_647) % 2];
    const word = (length: number): string => Array.from({ length }, letter).join('');
    for (let i = 0; i < 2000; i++) {
      const target = word(1 + (i % 6));
      const read = word(i % 17);
      const length = [...target].length;
      const plain = read.includes(target) ? 1 : 1 - Math.min(editDistance([...target], [...read]), length) / length;
      expect(similarity(target, read)).toBe(plain);
    }
  });
});

describe('the confidence of a reading', () => {
  it.each([
    ['one line', [{ text: 'abcd', confidence: 0.9 }], 0.9],
    [
      'weighted by length',
      [
        { text: 'abcdefgh', confidence: 1 },
        { text: 'xy', confidence: 0.5 },
      ],
      0.9,
    ],
    [
      'whitespace has no weight',
      [
        { text: 'ab', confidence: 1 },
        { text: '  \n ', confidence: 0 },
      ],
      1,
    ],
    [
      'a pictograph counts once',
      [
        { text: '\u{1F600}', confidence: 1 },
        { text: 'a', confidence: 0 },
      ],
      0.5,
    ],
    ['nothing read', [], 0],
  ])('%s', (_, lines, expected) => {
    expect(weightedConfidence(lines)).toBeCloseTo(expected, 12);
  });
});

it('normalises to one form', () => {
  expect(normalizeText(' \uFB01ne\r\nDAY\u2003')).toBe('fineday');
});
