import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import { exactWords, wordSequence } from '../../../src/rewards/terms/word_sequence.js';
import { wordOverlap } from '../../../src/rewards/terms/word_overlap.js';
import { termContract, wholeItem } from './term_contract.js';
import { testServices } from './term_services.js';

termContract('word_sequence', () => wordSequence.create({}, testServices()));
termContract('exact_words', () => exactWords.create({}, testServices()));

const kinds = { word_sequence: wordSequence, exact_words: exactWords, word_overlap: wordOverlap };

async function value(kind: keyof typeof kinds, answer: string, expected: string): Promise<number> {
  const term = await kinds[kind].create({}, testServices());
  const outcome = await term.score(wholeItem({ answer, expected, source: null, edited: null, truth: null }));
  if (outcome.kind !== 'scored') throw new Error(outcome.kind);
  expect(outcome.normalised).toBe(outcome.value);
  return outcome.value;
}

const LABEL = 'a blue triangle below a blue square';

describe('words in their order', () => {
  it.each([
    ['right', LABEL, 1, 1],
    ['right, with capitals and a full stop', 'A blue triangle, below a BLUE square.', 1, 1],
    ['the nouns exchanged', 'a blue square below a blue triangle', 1 - 2 / 7, 0],
    ['the relation turned round', 'a blue triangle above a blue square', 1 - 1 / 7, 0],
    ['the relation left out', 'a blue triangle a blue square', 1 - 1 / 7, 0],
    ['another colour', 'a red triangle below a blue square', 1 - 1 / 7, 0],
    ['half of it', 'a blue triangle', 3 / 7, 0],
    ['going on after the end', `${LABEL} below a blue triangle`, 1 - 4 / 11, 0],
    ['said twice', `${LABEL} ${LABEL}`, 1 / 2, 0],
    ['words in front', `the answer is ${LABEL}`, 1 - 3 / 10, 0],
    ['a bag of its words', 'square triangle blue below a', 2 / 7, 0],
    ['one word over and over', 'blue blue blue blue blue blue blue', 2 / 7, 0],
    ['every word there is', 'a red blue green yellow square circle triangle cross above below left right', 3 / 13, 0],
    ['other words', 'no idea', 0, 0],
    ['nothing', '', 0, 0],
    ['nothing but signs', '?!', 0, 0],
  ])('%s: %j is worth %d, and as a whole %d', async (_what, answer, sequence, whole) => {
    expect(await value('word_sequence', answer, LABEL)).toBeCloseTo(sequence, 12);
    expect(await value('exact_words', answer, LABEL)).toBe(whole);
  });

  it('are distinguished although their bags of words are equal', async () => {
    for (const answer of ['a blue square below a blue triangle', `${LABEL} below a blue triangle`]) {
      expect(await value('word_overlap', answer, LABEL)).toBe(1);
      expect(await value('word_sequence', answer, LABEL)).toBeLessThan(0.75);
    }
  });

  it.each(['word_sequence', 'exact_words'] as const)('%s refuses a label without words, by its item', async (kind) => {
    await expect(value(kind, 'a', '\u2026')).rejects.toThrow(DataError);
    await expect(value(kind, 'a', '')).rejects.toMatchObject({ where: '4/2/1' });
    expect(kinds[kind].wrongLabel?.('?', {})).toMatch(/"\?" contains no word/);
    expect(kinds[kind].wrongLabel?.('7', {})).toBeNull();
  });
});
