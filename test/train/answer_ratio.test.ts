/** Ratios of whole answers against the objective as GSPO writes it, differentiated by differences in float64. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import type { TrainGroup } from '../../src/train/policies/policy.js';
import { answerRatioOf, withAnswerRatios, type AnswerRatio } from '../../src/train/answer_ratio.js';

const random = new RandomStream('answer ratio', 1);
const LENGTHS = [3, 7, 1, 5, 12, 4];
const draw = (length: number, of: () => number): Float32Array => Float32Array.from({ length }, of);
const answers = LENGTHS.map((length, i) => {
  const old = draw(length, () => -1.5 + 0.5 * random.normal());
  const weights = draw(length, () => 1 / (LENGTHS.length * length));
  // One action is not trained.
  if (i === 1) weights[2] = 0;
  // Answers move in different directions, and by different amounts.
  const drift = [0.4, -0.4, 0.05, -0.35, 0.3, -0.02][i];
  return {
    old,
    weights,
    now: old.map((one) => one + drift + 0.1 * random.normal()),
    advantage: [1.2, 0.7, -0.4, -1.1, -0.9, 0.3][i],
  };
});
const trainGroups: TrainGroup<string, number>[] = answers.map(({ old, weights, advantage }, i) => ({
  prompt: 'one',
  answers: [i],
  targets: [{ weights, advantages: advantage, reference: null, old: { logProbs: old } }],
}));

/** -sum_a w_a min(s A, clip(s) A), or with min(s, 1 + high) apart from the gradient, of one answer. */
function objective(i: number, now: readonly number[], { surrogate, clip }: AnswerRatio, fixed: number): number {
  const { old, weights, advantage } = answers[i];
  const trained = now.flatMap((one, t) => (weights[t] === 0 ? [] : [one - old[t]]));
  const s = Math.exp(trained.reduce((sum, one) => sum + one, 0) / trained.length);
  const gains = now.map((one) => {
    if (clip === null) return s * advantage;
    if (surrogate === 'cispo') return Math.min(fixed, 1 + clip.high) * advantage * one;
    return Math.min(s * advantage, Math.max(1 - clip.low, Math.min(1 + clip.high, s)) * advantage);
  });
  return -gains.reduce((sum, gain, t) => sum + weights[t] * gain, 0);
}

describe('the ratio of an answer', () => {
  it.each<AnswerRatio>([
    { surrogate: 'ppo', clip: null },
    { surrogate: 'ppo', clip: { low: 0.2, high: 0.2 } },
    { surrogate: 'ppo', clip: { low: 0.1, high: 0.45 } },
    { surrogate: 'cispo', clip: { low: 0.1, high: 0.2 } },
  ])('%j has the gradient of its objective', (settings) => {
    const now = answers.map((one) => [{ logProbs: one.now }]);
    const found = withAnswerRatios(trainGroups, now, settings);
    let clipped = 0;
    answers.forEach((answer, i) => {
      const { weights, advantages } = found.trainGroups[i].targets[0];
      const s = answerRatioOf(answer.weights, { logProbs: answer.now }, { logProbs: answer.old });
      answer.now.forEach((_, t) => {
        const at = (shift: number): number =>
          objective(
            i,
            [...answer.now].map((one, k) => (k === t ? one + shift : one)),
            settings,
            s,
          );
        const slope = (at(1e-6) - at(-1e-6)) / 2e-6;
        const mine = -weights[t] * (advantages as Float32Array)[t];
        if (weights[t] !== 0 && mine === 0) clipped += 1;
        // Every trained action has the same share of s: the weights of an answer are equal.
        expect(Math.abs(mine - (weights[t] === 0 ? 0 : slope))).toBeLessThan(1e-7 + 1e-4 * Math.abs(slope));
      });
    });
    expect(clipped > 0).toBe(settings.clip !== null && settings.surrogate === 'ppo');
    const whole = answers.reduce((sum, answer, i) => sum + objective(i, [...answer.now], settings, NaN), 0);
    if (settings.surrogate === 'ppo') expect(found.loss).toBeCloseTo(whole, 6);
  });

  it('is 1 for an answer of which nothing is trained', () => {
    const none = { logProbs: Float32Array.of(-1, -2) };
    expect(answerRatioOf(new Float32Array(2), none, { logProbs: Float32Array.of(0, 0) })).toBe(1);
  });
});
