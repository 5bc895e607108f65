import { afterAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import type { TokenAnswer, TokenPrompt } from '../../src/policies/tokens/batch.js';
import { Learner } from '../../src/policies/tokens/learner.js';
import { Sampler, type RolloutOptions } from '../../src/policies/tokens/rollout.js';
import { openPrompt, smallModel, smallSpace, textPrompt } from './small_policy.js';

const space = smallSpace();
const model = smallModel(space);
const session = { threads: 1 };
const options: RolloutOptions = {
  answersPerPrompt: 4,
  maxTokens: 18,
  temperature: 0.7,
  topP: 1,
  topK: -1,
  logProbTemperature: 0.7,
};
const prompts = [openPrompt(space), textPrompt(space), openPrompt(space, 'remove', 3)];
const streamOf = (p: number, g: number): RandomStream => new RandomStream(9, 'answers', p, g);
const ids = (answers: readonly (readonly TokenAnswer[])[]): number[][][] =>
  answers.map((group) => group.map((answer) => [...answer.ids]));

const samplers: Sampler[] = [];
function sampler(constrained = true, separate = true): Sampler {
  const made = new Sampler(model, constrained, separate, session);
  samplers.push(made);
  return made;
}
afterAll(async () => {
  await Promise.all(samplers.map((made) => made.dispose()));
});

describe('sampling answers', () => {
  it.each([
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  ])(
    'records the log-probabilities that the learner finds (constrained %s, separate %s)',
    async (constrained, separate) => {
      const answers = await sampler(constrained, separate).sample(prompts, options, streamOf);
      const learner = new Learner(model, {
        temperature: 0.7,
        separateVocabularies: separate,
        microBatch: 4,
        gradientCheckpointing: false,
        session,
      });
      const statistics = await learner.statistics(
        prompts.map((prompt, p) => ({ prompt, answers: answers[p] })),
        model.weights,
      );
      await learner.dispose();
      answers.forEach((group, p) =>
        group.forEach((answer, g) => {
          expect(statistics[p][g].logProbs).toHaveLength(answer.ids.length);
          answer.logProbs.forEach((x, t) => expect(Math.abs(x - statistics[p][g].logProbs[t])).toBeLessThan(1e-4));
        }),
      );
    },
  );

  it('gives the same answers to the same random numbers', async () => {
    const first = ids(await sampler().sample(prompts, options, streamOf));
    expect(ids(await sampler().sample(prompts, options, streamOf))).toEqual(first);
    const others = await sampler().sample(prompts, options, (p, g) => new RandomStream(10, p, g));
    expect(ids(others)).not.toEqual(first);
  });

  it('gives a group that shares its prefill the answers that separate prompts get', async () => {
    const shared = await sampler().sample(prompts, options, streamOf);
    const repeated: TokenPrompt[] = prompts.flatMap((prompt) => Array<TokenPrompt>(4).fill(prompt));
    const separate = await sampler().sample(repeated, { ...options, answersPerPrompt: 1 }, (i) =>
      streamOf(Math.floor(i / 4), i % 4),
    );
    expect(ids(shared).flat()).toEqual(ids(separate).flat());
    shared
      .flat()
      .forEach((answer, i) => answer.logProbs.forEach((x, t) => expect(x).toBeCloseTo(separate[i][0].logProbs[t], 4)));
  });

  it('gives a prompt the same answers whatever else is in its batch', async () => {
    const together = await sampler().sample(prompts, options, streamOf);
    const alone = await sampler().sample([prompts[2]], options, (_p, g) => streamOf(2, g));
    expect(ids(alone)[0]).toEqual(ids(together)[2]);
  });

  it('ends at the end token, which it keeps, or at the longest answer', async () => {
    const answers = (await sampler().sample(prompts, { ...options, temperature: 2 }, streamOf)).flat();
    for (const { ids: tokens, finished, logProbs } of answers) {
      expect(tokens.indexOf(space.special.eos)).toBe(finished ? tokens.length - 1 : -1);
      expect(tokens.length).toBeLessThanOrEqual(options.maxTokens);
      if (!finished) expect(tokens).toHaveLength(options.maxTokens);
      expect(logProbs).toHaveLength(tokens.length);
    }
    expect(new Set(answers.map(({ finished }) => finished)).size).toBe(2);
  });

  it('is greedy at temperature 0, whatever the random numbers are', async () => {
    const greedy = { ...options, temperature: 0 };
    const [first, second] = await Promise.all(
      [1, 2].map((seed) => sampler().sample(prompts, greedy, (p, g) => new RandomStream(seed, p, g))),
    );
    expect(ids(first)).toEqual(ids(second));
    for (const group of ids(first)) expect(new Set(group.map(String)).size).toBe(1);
  });
});
