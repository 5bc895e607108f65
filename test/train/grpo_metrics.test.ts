import { expect, it } from 'vitest';
import type { Answer } from '../../src/policies/policy.js';
import { UpdateTotals } from '../../src/train/grpo_metrics.js';

it('keeps the statistics of the first step: later ones are of weights that have learnt', () => {
  const totals = new UpdateTotals({ divergence: () => new Float64Array() }, null);
  const statistics = (logProb: number) => [[{ logProbs: Float32Array.of(logProb) }]];
  const lessons = [
    {
      prompt: 'a',
      answers: [{ logProbs: Float32Array.of(-1), finished: true } satisfies Answer],
      targets: [{ weights: Float32Array.of(1), advantage: 1, reference: null, old: null }],
    },
  ];
  for (const [step, logProb] of [-1, -2, -3].entries()) {
    totals.add(lessons, { loss: step, statistics: statistics(logProb), klClamped: 0 }, true);
  }
  expect(totals.first).toEqual(statistics(-1));
});
