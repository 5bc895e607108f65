import { describe, expect, it } from 'vitest';
import type { Answer, Statistics } from '../../src/policies/policy.js';
import { outcomeAdvantages } from '../../src/train/advantages.js';
import { klPenalties, penaltyMetrics } from '../../src/train/reward_kl.js';

const answer = (...logProbs: number[]): Answer => ({ logProbs: Float32Array.from(logProbs), finished: true });

function policy(start: number, now: number) {
  const asked: string[] = [];
  const statistics = async (
    groups: readonly { readonly answers: readonly Answer[] }[],
    of: string,
  ): Promise<Statistics[][]> => {
    asked.push(of);
    const logProb = of === 'reference' ? start : now;
    return groups.map(({ answers }) => answers.map(({ logProbs }) => ({ logProbs: logProbs.map(() => logProb) })));
  };
  return { asked, statistics };
}

describe('a KL penalty in the reward', () => {
  it('is the sum over the answer of how much more probable its actions are than at the start', async () => {
    const one = policy(-2, -9);
    const found = await klPenalties(one, [{ prompt: 'a', answers: [answer(-1, -1.5), answer(-2.5)] }], 0.1);
    expect(one.asked).toEqual(['reference']);
    [0.15, -0.05].forEach((expected, g) => expect(found[0][g]).toBeCloseTo(expected, 7));
    expect(penaltyMetrics(found)['reward/kl_penalty']).toBeCloseTo(0.05, 7);
  });

  it('asks the weights of now where a sampler told nothing', async () => {
    const one = policy(-2, -1);
    const found = await klPenalties(one, [{ prompt: 'a', answers: [answer(NaN, NaN), answer(-7)] }], 1);
    expect(one.asked).toEqual(['reference', 'current']);
    expect(found).toEqual([[2, 1]]);
  });

  it('is taken from the rewards that are compared', () => {
    const scored = (value: number) => ({ kind: 'scored', value, normalised: value / 10, parts: {} }) as const;
    const settings = { scope: 'group', scale: 'none', eps: 1e-4, clip: null, per_term: false } as const;
    const given = [[scored(4), scored(6), { kind: 'zero_by_rule', reason: 'unfinished', parts: {} } as const]];
    const [{ advantages }] = outcomeAdvantages(given, settings, [], 1, [], [[1, 0, 2]]);
    const [alike] = outcomeAdvantages([[scored(5), scored(5)]], settings, [], 1, [], [[1, 0]]);
    expect(alike).toEqual({ advantages: [-0.5, 0.5], dropped: false, zeroSpread: true });
    // 3, 6 and -2 around their mean.
    [3, 6, -2].forEach((reward, i) => expect(advantages[i]).toBeCloseTo(reward - 7 / 3, 9));
  });
});
