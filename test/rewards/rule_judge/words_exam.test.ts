import { describe, expect, it } from 'vitest';
import type { Outcome, JudgeItem } from '../../../src/rewards/score/types.js';
import { examine } from '../../../src/rewards/exam/examine.js';
import { marksOf, type ExamMarks, verdictOf } from '../../../src/rewards/exam/findings.js';
import { withBiases, type BiasContext } from '../../../src/rewards/rule_judge/biases.js';
import { gradeWords } from '../../../src/rewards/rule_judge/answers.js';
import { wordsExam } from '../../../src/rewards/rule_judge/words_exam.js';
import { accusedOf } from './biased.js';
import { wrongScores, type WrongWays } from './wrong_ways.js';

const CASES = 35;

/** Marks of the rule judge with these biases on a seed's questions in words. */
async function examined(biases: WrongWays, seed: number): Promise<ExamMarks> {
  const score = async ({ instruction, answer = '', expected = '' }: JudgeItem): Promise<Outcome> => {
    const graded = { answer, reference: expected };
    const question = { kind: 'answer', instruction, images: [], graded } as const;
    const seen: BiasContext = { question, images: [] };
    const answered = gradeWords(question);
    const found = withBiases({ ...answered, scores: wrongScores(answered.scores, seen, biases) }, seen, biases);
    if (found === null) return { kind: 'unscored', reason: 'unparsable', detail: 'undecided', parts: {} };
    return { kind: 'scored', value: found.scores[0], normalised: found.scores[0] / 10, parts: {} };
  };
  const { signal } = new AbortController();
  return marksOf(await examine(wordsExam(CASES, seed), { repeats: 2, atOnce: 1, signal, score }));
}

describe('the exam of a judge of words', () => {
  it('accuses a sound one of nothing', async () => {
    const marks = await examined({}, 1);
    expect(accusedOf(marks)).toEqual([]);
    expect(marks.fidelity.mean).toBeCloseTo(1, 6);
    expect(verdictOf(marks).teaches).toBe('yes');
  });

  it('accuses one with a little noise in at most two of 40 seeds', async () => {
    const seeds = Array.from({ length: 40 }, (_, i) => i + 1);
    const accused = await Promise.all(seeds.map(async (seed) => accusedOf(await examined({ noise: 0.1 }, seed))));
    expect(accused.filter(({ length }) => length > 0).length).toBeLessThanOrEqual(2);
  });

  it.each<[string, WrongWays, string[], string]>([
    ['length', { length: 0.5 }, ['length'], 'weakly'],
    ['praise', { praise: 0.5 }, ['praise'], 'weakly'],
    ['layout', { layout: 0.5 }, ['layout'], 'yes'],
    ['wording', { wording: 0.5 }, ['wording'], 'yes'],
    ['noise', { noise: 0.5 }, ['noise'], 'weakly'],
    ['unreadable', { unreadable: 0.1 }, ['unreadable'], 'yes'],
    ['lenient', { lenient: 1 }, ['misses_half_done', 'misses_too_much'], 'yes'],
  ])('names the fault of one with the bias %s', async (_, biases, faults, teaches) => {
    const marks = await examined(biases, 2);
    expect(accusedOf(marks)).toEqual(expect.arrayContaining(faults));
    expect(verdictOf(marks).teaches).toBe(teaches);
  });

  it.each<[string, WrongWays]>([
    ['blind', { blind: 1 }],
    ['inverted', { inverted: 1 }],
  ])('says of one that is %s that its order is none', async (_, biases) => {
    const marks = await examined(biases, 3);
    expect(accusedOf(marks)).toContain('blind');
    expect(verdictOf(marks).teaches).toBe('no');
  });

  it('says of one that wants the right answer word by word that it does', async () => {
    const score = async ({ answer = '', expected = '' }: JudgeItem): Promise<Outcome> => {
      const value = answer.trim().replace('.', '') === expected ? 1 : 0;
      return { kind: 'scored', value, normalised: value, parts: {} };
    };
    const { signal } = new AbortController();
    const marks = marksOf(await examine(wordsExam(CASES, 1), { repeats: 2, atOnce: 1, signal, score }));
    expect(accusedOf(marks)).toContain('misses_other_words');
    expect(verdictOf(marks).sentences).toContain('It scores the right answer lower in other words.');
  });
});
