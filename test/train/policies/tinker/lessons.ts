/** What a policy at a training server is asked and taught in tests: to write odd tokens. */
import { RandomStream } from '../../../../src/core/random.js';
import type { TrainGroup, SampleRequest } from '../../../../src/train/policies/policy.js';
import type { TokenAnswer, TokenRequest } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenSampling } from '../../../../src/train/policies/tokens/sampling.js';
import type { TinkerPolicy } from '../../../../src/train/policies/tinker/policy.js';
import { how, prompts } from './served.js';

export const request = (name: string, answersPerPrompt = 4): SampleRequest<TokenRequest, TokenSampling> => ({
  prompts,
  among: prompts,
  answersPerPrompt,
  how,
  weights: 'current',
  random: (p, g) => new RandomStream(name, p, g),
  key: (p, g) => `${name}/${p}/${g}`,
});

/** Rewards the share of odd tokens. */
export function trainGroupsOf(answers: readonly (readonly TokenAnswer[])[]): TrainGroup<TokenRequest, TokenAnswer>[] {
  const tokens = answers.flat().reduce((sum, { ids }) => sum + ids.length, 0);
  return prompts.map((prompt, p) => {
    const rewards = answers[p].map(({ ids }) => ids.filter((id) => id % 2 === 1).length / ids.length);
    const mean = rewards.reduce((sum, one) => sum + one, 0) / rewards.length;
    return {
      prompt,
      answers: answers[p],
      targets: answers[p].map(({ ids }, g) => ({
        weights: new Float32Array(ids.length).fill(1 / tokens),
        advantages: rewards[g] - mean,
        reference: null,
        old: null,
      })),
    };
  });
}

export const reward = (answers: readonly (readonly TokenAnswer[])[]): number => {
  const all = answers.flat().flatMap(({ ids }) => [...ids]);
  return all.filter((id) => id % 2 === 1).length / all.length;
};

/** Answers of the weights of now. */
export async function sampled(policy: TinkerPolicy, asked: ReturnType<typeof request>): Promise<TokenAnswer[][]> {
  await policy.publish('current');
  return policy.sample(asked);
}

export async function trained(policy: TinkerPolicy, from: number, to: number): Promise<void> {
  for (let iteration = from; iteration < to; iteration++) {
    const answers = await sampled(policy, request(`iteration ${iteration}`, 8));
    await policy.learn(trainGroupsOf(answers), { policy: 'reinforce', kl: null });
    await policy.step(0.1);
  }
}
