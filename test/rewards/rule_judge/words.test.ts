import { describe, expect, it } from 'vitest';
import { gradeWords } from '../../../src/rewards/rule_judge/answers.js';

const instruction = 'which of these are even: 12, 15, 18, 21?';
const grade = (answer: string, reference = '12 and 18'): readonly number[] =>
  gradeWords({ instruction, graded: { answer, reference } }).scores;

describe("the rule judge's grade of words", () => {
  it.each<[string, number]>([
    ['12 and 18', 10],
    ['I would say 18, then 12.', 10],
    ['12', 5],
    ['12, 18 and 15', (10 * 2) / 3],
    ['15 and 21', 0],
    ['10/10', 0],
    ['I cannot say.', 0],
    ['118', 0],
    [instruction, 0],
    [`${instruction} 12 and 18.`, 10],
  ])('gives %j %d', (answer, score) => {
    expect(grade(answer)[0]).toBeCloseTo(score, 9);
  });

  it('reports what it grades if nothing is to be graded, and rejects what it cannot grade', () => {
    expect(gradeWords({ instruction: '', graded: null })).toMatchObject({ scores: [] });
    expect(() => grade('12', '')).toThrow('questions that end in a list, beside a reference');
    expect(() => gradeWords({ instruction: 'why?', graded: { answer: 'a', reference: 'b' } })).toThrow('end in a list');
  });
});
