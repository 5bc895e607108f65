import { expect, it } from 'vitest';
import type { Answer } from '../../src/train/policies/policy.js';
import { episodeMetrics, UpdateTotals } from '../../src/train/grpo_metrics.js';

const unclipped = { clip_range: null, clip_range_high: null, surrogate: 'ppo', ratio: 'token' } as const;

it('keeps the statistics of the first step: later ones are of weights that have learned', () => {
  const totals = new UpdateTotals({ divergence: () => new Float64Array() }, unclipped);
  const statistics = (logProb: number) => [[{ logProbs: Float32Array.of(logProb) }]];
  const lessons = [
    {
      prompt: 'a',
      answers: [{ logProbs: Float32Array.of(-1), finished: true } satisfies Answer],
      targets: [{ weights: Float32Array.of(1), advantages: 1, reference: null, old: null }],
    },
  ];
  for (const [step, logProb] of [-1, -2, -3].entries()) {
    totals.add(lessons, { loss: step, statistics: statistics(logProb), klClamped: 0 }, true);
  }
  expect(totals.first).toEqual(statistics(-1));
});

it('reports how far the actions that carry the loss have moved, on average', () => {
  const totals = new UpdateTotals({ divergence: () => new Float64Array() }, unclipped);
  const of = (...values: number[]): Float32Array => Float32Array.from(values);
  const now = { logProbs: new Float32Array(3), moved: of(0.1, 0.3, 9) };
  const old = { logProbs: new Float32Array(3) };
  const target = { weights: of(1, 1, 0), advantages: 1, reference: null, old };
  totals.add([{ prompt: 'a', answers: [{}], targets: [target] }], { loss: 0, statistics: [[now]], klClamped: 0 }, true);
  expect(totals.metrics()['policy/moved']).toBeCloseTo(0.2, 6);
});

it('counts the answers that the context cut apart from those that came to the longest length', () => {
  const answer = (tokens: number, finished: boolean): Answer => ({ logProbs: new Float32Array(tokens), finished });
  const groups = [{ answers: [answer(3, true), answer(8, false)] }, { answers: [answer(4, false), answer(8, true)] }];
  const metrics = episodeMetrics(groups, [], 8);
  expect(metrics).toMatchObject({ 'episode/non_stop_rate': 0.5, 'episode/cut_by_context': 0.25 });
  expect(episodeMetrics(groups, [])).not.toHaveProperty('episode/cut_by_context');
});
