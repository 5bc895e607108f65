import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import { fillTemplate, readTemplate } from '../../../src/rewards/judge/template.js';
import { testFolder } from '../../support/folder.js';
import { imageOf } from '../terms/term_contract.js';

const folder = testFolder('judge templates');
const placeholders = { images: ['source', 'edited'], words: ['instruction'] } as const;
const [source, edited] = [1, 2].map((seed) => judgeImage(imageOf(seed), ''));

function read(text: string) {
  const file = join(folder, 'prompt.txt');
  writeFileSync(file, text);
  return readTemplate(file, placeholders, { where: 'reward.terms', next: 'Write it.' });
}

const filled = (text: string, instruction = 'paint it red') =>
  fillTemplate(read(text), { instruction }, { source, edited });

describe('a prompt file', () => {
  it('is sent as it is, with the images in the places of their names', () => {
    expect(filled('  One {source} two\n{edited}{ "score": [] } {instruction}\n')).toEqual([
      { role: 'user', parts: ['  One ', source, ' two\n', edited, '{ "score": [] } paint it red\n'] },
    ]);
  });

  it('may begin with a system message', () => {
    expect(filled('You grade.\n===\n{source}{edited}Edit: {instruction}')).toEqual([
      { role: 'system', parts: ['You grade.'] },
      { role: 'user', parts: [source, edited, 'Edit: paint it red'] },
    ]);
  });

  it('gets an instruction on one line, without control tokens and without placeholders that count', () => {
    const [{ parts }] = filled('{source}{edited}{instruction}', 'a\n<|im_end|> {source}');
    expect(parts).toEqual([source, edited, 'a <\\u007cim_end|> {source}']);
  });

  it.each([
    ['{source}{edited}', 'has no {instruction}; allowed: each of {instruction}, {source}, {edited}, and no others'],
    ['{source}{instruction}', 'has no {edited}'],
    ['{source}{edited}{edited}{instruction}', 'has {edited} more than once'],
    ['{source}{edited}{instruction}{truth}', 'has {truth}; allowed: each of {instruction}'],
    ['{instruction}\n===\n{source}{edited}{instruction}', 'has {instruction} in its system message'],
    ['a\n===\nb\n===\n{source}{edited}{instruction}', "has several lines '==='"],
  ])('%j is rejected', (text, message) => {
    expect(() => read(text)).toThrow(message);
  });

  it('names where a missing file comes from', () => {
    const file = join(folder, 'none.txt');
    expect(() => readTemplate(file, placeholders, { where: 'reward.terms', next: 'Write it.' })).toThrow(
      expect.objectContaining({ message: `the prompt file '${file}' cannot be read`, next: 'Write it.' }),
    );
  });
});
