import { afterAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { shareOf } from '../../../src/core/group/peers.js';
import type { TokenAnswer } from '../../../src/train/policies/tokens/batch.js';
import type { Emu3Prompt } from '../../../src/train/policies/tokens/emu3.js';
import { Sampler, type SamplerOptions } from '../../../src/train/policies/tokens/rollout.js';
import type { TokenSampling } from '../../../src/train/policies/tokens/sampling.js';
import { learnerOf } from './small_lesson.js';
import { openPrompt, smallModel, smallSpace, textPrompt } from './small_policy.js';

const space = smallSpace();
const model = smallModel(space);
const options: TokenSampling = {
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

const samplers: Sampler<Emu3Prompt>[] = [];

interface Requested {
  readonly of?: readonly Emu3Prompt[];
  readonly among?: readonly Emu3Prompt[];
  readonly how?: TokenSampling;
  readonly answersPerPrompt?: number;
  readonly random?: (prompt: number, answer: number) => RandomStream;
}

function sampler(changes: Partial<SamplerOptions> = {}): Sampler<Emu3Prompt> {
  const made = new Sampler(model, {
    constrained: true,
    separateVocabularies: true,
    contextSize: 100,
    session: { threads: 1 },
    ...changes,
  });
  samplers.push(made);
  return made;
}

function sample(asked: Requested = {}, by = sampler()): Promise<TokenAnswer[][]> {
  const { of = prompts, among = of, how = options, answersPerPrompt = 4, random = streamOf } = asked;
  const [chunk, all] = [of, among].map((some) => some.map((tokens) => ({ tokens })));
  return by.sample(
    { prompts: chunk, among: all, answersPerPrompt, how, weights: 'current', random },
    model.weights,
    'made',
  );
}
afterAll(async () => {
  await Promise.all(samplers.map((made) => made.dispose()));
});

describe('sampling answers', () => {
  it.each([
    [true, true],
    [false, false],
  ])(
    'records the log-probabilities that the learner finds (constrained %s, separate %s)',
    async (constrained, separate) => {
      const answers = await sample({}, sampler({ constrained, separateVocabularies: separate }));
      const learner = learnerOf(model, { temperature: 0.7, separateVocabularies: separate, microBatch: 4 });
      const statistics = await learner.statistics(
        prompts.map((tokens, p) => ({ prompt: { tokens }, answers: answers[p] })),
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

  it('has the same log-probabilities with packed weights as with weights as inputs, for their version', async () => {
    const fed = await sample();
    const by = sampler({ packed: 'all' });
    const packed = await sample({}, by);
    expect(ids(packed)).toEqual(ids(fed));
    const all = (answers: readonly (readonly TokenAnswer[])[]) =>
      answers.flat().flatMap(({ logProbs }) => [...logProbs]);
    all(packed).forEach((x, t) => expect(Math.abs(x - all(fed)[t])).toBeLessThan(1e-4));
    const asked = prompts.map((tokens) => ({ tokens }));
    const request = { prompts: asked, among: asked, answersPerPrompt: 4, how: options, weights: 'current', random: streamOf } as const; // prettier-ignore
    const changed = new Map([...model.weights].map(([name, { shape, data }]) => [name, { shape, data: data.map((x) => 0.9 * x) }])); // prettier-ignore
    const later = await by.sample(request, changed, 'changed');
    expect(later).toEqual(await sampler({ packed: 'all' }).sample(request, changed, 'another'));
    expect(all(later)).not.toEqual(all(packed));
  });

  it('gives a group that shares its prefill the answers that separate prompts get', async () => {
    const shared = await sample();
    const repeated = prompts.flatMap((prompt) => Array<Emu3Prompt>(4).fill(prompt));
    const random = (i: number): RandomStream => streamOf(Math.floor(i / 4), i % 4);
    const separate = await sample({ of: repeated, answersPerPrompt: 1, random });
    expect(ids(shared).flat()).toEqual(ids(separate).flat());
    shared
      .flat()
      .forEach((answer, i) => answer.logProbs.forEach((x, t) => expect(x).toBeCloseTo(separate[i][0].logProbs[t], 4)));
  });

  it('ends at the end token, which it keeps, or at the longest answer', async () => {
    const answers = (await sample({ how: { ...options, temperature: 2 } })).flat();
    for (const { ids: tokens, finished, logProbs } of answers) {
      expect(tokens.indexOf(space.special.eos)).toBe(finished ? tokens.length - 1 : -1);
      expect(tokens.length).toBeLessThanOrEqual(options.maxTokens);
      if (!finished) expect(tokens).toHaveLength(options.maxTokens);
      expect(logProbs).toHaveLength(tokens.length);
    }
    expect(new Set(answers.map(({ finished }) => finished)).size).toBe(2);
  });

  it('is greedy at temperature 0, whatever the random numbers are', async () => {
    const how = { ...options, temperature: 0 };
    const [first, second] = await Promise.all(
      [1, 2].map((seed) => sample({ how, random: (p, g) => new RandomStream(seed, p, g) })),
    );
    expect(ids(first)).toEqual(ids(second));
    for (const group of ids(first)) expect(new Set(group.map(String)).size).toBe(1);
  });

  it('ends an answer where the context does', async () => {
    const lengths = prompts.map((prompt) => prompt.ids.length);
    const contextSize = Math.max(...lengths) + 5;
    const whole = ids(await sample());
    const cut = await sample({}, sampler({ contextSize }));
    cut.forEach((group, p) =>
      group.forEach((answer, g) => {
        expect([...answer.ids]).toEqual(whole[p][g].slice(0, contextSize - lengths[p]));
        expect(answer.finished).toBe(answer.ids.at(-1) === space.special.eos);
      }),
    );
    expect(new Set(cut.flat().map((answer) => answer.ids.length)).size).toBeGreaterThan(1);
  });

  it.each([1, 4])(
    'has the same bits whatever the chunks and the ranks: %i answers to prompts of many lengths',
    async (answersPerPrompt) => {
      const many = Array.from({ length: 9 }, (_, i) => {
        const instruction = Array.from(
          { length: (7 * i) % 20 },
          (_, word) => ['red', 'circle', 'the'][(i + word) % 3],
        ).join(' ');
        return (i % 2 === 0 ? openPrompt : textPrompt)(space, instruction);
      });
      const lengths = many.map((prompt) => prompt.ids.length);
      expect(new Set(lengths).size).toBeGreaterThan(5);
      // Some answers end with the context.
      const one = sampler({ contextSize: Math.max(...lengths) + 9 });
      const inChunks = async (size: number, ranks: number): Promise<TokenAnswer[][]> => {
        const out: TokenAnswer[][] = [];
        for (let rank = 0; rank < ranks; rank++) {
          const { start, end } = shareOf(many.length, { rank, size: ranks });
          for (let at = start; at < end; at += size) {
            const of = many.slice(at, Math.min(end, at + size));
            const random = (p: number, g: number): RandomStream => streamOf(at + p, g);
            out.push(...(await sample({ of, among: many, answersPerPrompt, random }, one)));
          }
        }
        return out;
      };
      const whole = await inChunks(many.length, 1);
      for (const ranks of [1, 2]) {
        for (const size of [1, 2, many.length]) {
          expect(await inChunks(size, ranks), `${size} at once, ${ranks} ranks`).toEqual(whole);
        }
      }
    },
  );
});
