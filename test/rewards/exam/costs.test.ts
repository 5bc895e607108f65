import { describe, expect, it } from 'vitest';
import { costsOf, type ExamCosts } from '../../../src/rewards/exam/costs.js';
import type { Judgement } from '../../../src/rewards/score/types.js';
import type { ExamRecord } from '../../../src/run/exams.js';
import { costSentence, examCostRows } from '../../../src/run/report/exam.js';

function judgement(changes: Partial<Judgement>): Judgement {
  const question = { key: 'k', requestHash: 'h', model: 'm', text: 't', problem: null, scores: [7] };
  return { ...question, attempts: 1, latencyMs: 100, ...changes };
}

const counted = (prompt: number, completion: number, latencyMs = 100): Judgement =>
  judgement({ tokens: { prompt, completion }, latencyMs });

function rows(costs: ExamCosts, count: number): string[][] {
  return examCostRows({ costs, judgements: { count } } as ExamRecord);
}

describe('the costs of an exam', () => {
  it('are means and quantiles over its questions', () => {
    const costs = costsOf([counted(100, 10, 1000), counted(300, 20, 2000), counted(800, 90, 9000)]);
    expect(costs).toEqual({
      tokens: { prompt: 400, completion: 40, questions: 3 },
      seconds: { median: 2, p95: expect.closeTo(8.3, 9) as number },
    });
    expect(rows(costs, 3).map(([, found]) => found)).toEqual(['400 + 40', '2.00 to 8.30']);
    expect(costSentence(costs)).toMatch(/400 \+ 40 tokens and 2\.00 s .*8\.30 s/);
  });

  it('never are 0 for want of counts', () => {
    const costs = costsOf([judgement({}), judgement({})]);
    expect(costs).toMatchObject({ tokens: null });
    expect(rows(costs, 2).map(([, found]) => found)).toEqual(['unknown', '0.100 to 0.100']);
    expect(costSentence(costs)).toContain('does not report tokens');
  });
});
