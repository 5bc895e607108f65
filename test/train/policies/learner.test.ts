/** The learner's loss and gradient against a plain decoder and plain loops in float64, and against itself in other micro-batches. */
import { describe, expect, it, vi } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import type { FloatTensor } from '../../../src/core/safetensors.js';
import type { Learner, TokenTrainGroup } from '../../../src/train/policies/tokens/learner.js';
import type { LossSpec } from '../../../src/train/policies/losses/table.js';
import type { Statistics, Target } from '../../../src/train/policies/policy.js';
import { onRanks } from '../groups.js';
import { referenceLogits } from '../../compute/nets/reference_decoder.js';
import { learnerOf } from './small_lesson.js';
import { openPrompt, smallModel, smallSpace, textPrompt } from './small_policy.js';

const space = smallSpace();
const model = smallModel(space);
const temperature = 0.7;

/** A learner's report and the gradients, in arrays of their own. */
interface Learnt {
  readonly loss: number;
  readonly statistics: readonly (readonly Statistics[])[];
  readonly gradients: ReadonlyMap<string, Float32Array>;
}

const known = (logProbs: Float32Array): Statistics => ({ logProbs });

/** Three groups of so many answers of different lengths; the third of every three tokens is not trained. */
function makeGroups(...counts: readonly [number, number, number]): TokenTrainGroup[] {
  const stream = new RandomStream(21, 'groups');
  return [openPrompt(space), textPrompt(space), openPrompt(space, 'remove', 2)].map((prompt, i) => {
    const answers = Array.from({ length: counts[i] }, () => ({
      ids: Int32Array.from({ length: 2 + stream.integer(6) }, () => stream.integer(space.size)),
    }));
    const targets = answers.map(({ ids }) => ({
      weights: Float32Array.from(ids, (_, t) => (t % 3 === 2 ? 0 : 0.02)),
      advantages: stream.normal(),
      reference: known(Float32Array.from(ids, () => -3 + stream.normal())),
      old: known(Float32Array.from(ids, () => -3 + stream.normal())),
    }));
    return { prompt: { tokens: prompt }, answers, targets };
  });
}
const groups = makeGroups(8, 8, 8);
/** Few answers, because the plain decoder is slow; of each group the second one's actions differ in their advantages. */
const few = groups.slice(0, 2).map(({ prompt, answers, targets: [first, second] }) => ({
  prompt,
  answers: answers.slice(0, 2),
  targets: [first, { ...second, advantages: second.weights.map((_, t) => 1.5 * Math.cos(2 * t)) }],
}));

/** The largest difference of two arrays of the same length. */
function difference(a: Float32Array, b: Float32Array): number {
  return a.length === b.length ? a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0) : Infinity;
}

function gradientDifference(a: ReadonlyMap<string, Float32Array>, b: ReadonlyMap<string, Float32Array>): number {
  return Math.max(...[...a].map(([name, gradient]) => difference(gradient, b.get(name) ?? new Float32Array())));
}

const learner = (microBatch: number, separateVocabularies = true): Learner =>
  learnerOf(model, { temperature, separateVocabularies, microBatch });

async function learnt(by: Learner, lessons: readonly TokenTrainGroup[], loss: LossSpec): Promise<Learnt> {
  const report = await by.learn(lessons, loss);
  const gradients = new Map([...(await by.gradients())].map(([name, gradient]) => [name, gradient.slice()]));
  return { ...report, gradients };
}

async function gradientOf(
  loss: LossSpec,
  options: { microBatch: number; separate?: boolean; of?: readonly TokenTrainGroup[] },
): Promise<Learnt> {
  const made = learner(options.microBatch, options.separate);
  const result = await learnt(made, options.of ?? groups, loss);
  await made.dispose();
  return result;
}

/** log p of each token of an answer, from the logits of the plain decoder. */
function plainLogProbs(
  weights: ReadonlyMap<string, FloatTensor>,
  group: TokenTrainGroup,
  answer: number,
  separate: boolean,
): number[] {
  const ids = [...group.answers[answer].ids];
  const sequence = [...group.prompt.tokens.ids, ...ids.slice(0, -1)];
  return referenceLogits(model.config, weights, sequence, ids.length).map((logits, t) => {
    const seen = logits.filter((_, v) => !separate || space.isVision(v) === space.isVision(ids[t]));
    const total = seen.reduce((sum, x) => sum + Math.exp(x / temperature), 0);
    return logits[ids[t]] / temperature - Math.log(total);
  });
}

function plainLoss(weights: ReadonlyMap<string, FloatTensor>, loss: LossSpec, separate: boolean): number {
  let sum = 0;
  for (const group of few) {
    group.targets.forEach(({ weights: w, advantages, reference, old }, g) => {
      plainLogProbs(weights, group, g, separate).forEach((logProb, t) => {
        const advantage = typeof advantages === 'number' ? advantages : advantages[t];
        if (loss.policy === 'likelihood') sum -= w[t] * logProb;
        else {
          const r = loss.policy === 'ratio' ? Math.exp(logProb - old!.logProbs[t]) : null;
          const c = loss.policy === 'ratio' ? loss.clip : null;
          const clipped = r === null || c === null ? null : Math.min(1 + c, Math.max(1 - c, r)) * advantage;
          const policy = r === null ? logProb * advantage : Math.min(r * advantage, clipped ?? Infinity);
          const d = reference!.logProbs[t] - logProb;
          sum += w[t] * (kl.coefficient * (Math.exp(d) - d - 1) - policy);
        }
      });
    });
  }
  return sum;
}

const kl = { coefficient: 0.1 };
const grpo: LossSpec = { policy: 'reinforce', kl };
const losses: [string, LossSpec, boolean][] = [
  ['likelihood', { policy: 'likelihood' }, false],
  ['REINFORCE with k3', grpo, true],
  ['REINFORCE with k3 over the whole vocabulary', grpo, false],
  ['a clipped ratio', { policy: 'ratio', clip: 0.2, kl }, true],
];

describe('the learner', () => {
  it.each(losses)('%s: loss and gradient equal a plain computation', async (_name, loss, separate) => {
    const found = await gradientOf(loss, { microBatch: 2, separate, of: few });
    // float64 weights, so that differences are exact
    const weights = new Map(
      [...model.weights].map(([name, { shape, data }]) => [
        name,
        { shape, data: Float64Array.from(data) as unknown as Float32Array },
      ]),
    );
    expect(Math.abs(found.loss - plainLoss(weights, loss, separate))).toBeLessThan(1e-5);
    expect([...found.gradients.keys()].sort()).toEqual([...weights.keys()].sort());
    for (const [name, { data }] of weights) {
      const stream = new RandomStream('direction', name);
      const direction = Float64Array.from(data, () => stream.normal());
      const original = Float64Array.from(data);
      const at = (step: number): number => {
        original.forEach((x, i) => (data[i] = x + step * direction[i]));
        const value = plainLoss(weights, loss, separate);
        data.set(original);
        return value;
      };
      const h = 1e-5;
      const numeric = (at(h) - at(-h)) / (2 * h);
      const exact = found.gradients.get(name)!.reduce((sum, g, i) => sum + g * direction[i], 0);
      expect(Math.abs(exact - numeric), name).toBeLessThan(2e-5 * (1 + Math.abs(numeric)));
    }
  });

  it.each([
    // 16 takes two groups at once: its second micro-batch is half empty
    ['equal groups', groups, 24, [1, 2, 4, 8, 16]],
    // 6 takes two parts of three answers at once: of one group, of two, or one that is not full
    ['groups of different sizes', makeGroups(9, 9, 4), 27, [1, 3, 6, 9, 18]],
  ])('sums micro-batches of any size to the same loss, gradient and statistics: %s', async (_, of, all, sizes) => {
    const whole = await gradientOf(grpo, { microBatch: all, of });
    for (const microBatch of sizes) {
      const parts = await gradientOf(grpo, { microBatch, of });
      expect(Math.abs(parts.loss - whole.loss)).toBeLessThan(1e-6);
      expect(gradientDifference(whole.gradients, parts.gradients), `by ${microBatch}`).toBeLessThan(1e-6);
      whole.statistics.forEach((group, p) =>
        group.forEach(({ logProbs, entropy }, g) => {
          const found = parts.statistics[p][g];
          expect(found.logProbs).toHaveLength(of[p].answers[g].ids.length);
          expect(difference(logProbs, found.logProbs)).toBeLessThan(1e-5);
          expect(difference(entropy!, found.entropy!)).toBeLessThan(1e-5);
        }),
      );
    }
  });

  it('writes a gradient into the arrays of the one before, and nothing of that stays', async () => {
    const made = learner(2);
    await made.learn(groups, grpo);
    const first = await made.gradients();
    const firstValues = new Map([...first].map(([name, gradient]) => [name, gradient.slice()]));
    await made.learn(groups.slice(0, 1), grpo);
    const second = await made.gradients();
    for (const [name, gradient] of second) expect(gradient).toBe(first.get(name));
    const fresh = await gradientOf(grpo, { microBatch: 2, of: groups.slice(0, 1) });
    expect(second).toEqual(fresh.gradients);
    expect((await learnt(made, groups, grpo)).gradients).toEqual(firstValues);
    await made.dispose();
  });

  it('adds up what is learned in several calls', async () => {
    const made = learner(8);
    const one = await gradientOf(grpo, { microBatch: 8 });
    await made.learn(groups.slice(0, 2), grpo);
    await made.learn(groups.slice(2), grpo);
    expect(gradientDifference(await made.gradients(), one.gradients)).toBeLessThan(1e-6);
    await expect(made.gradients()).rejects.toThrow(InternalError);
    await made.dispose();
  });

  it('counts the weighted tokens whose exponent of k3 is beyond its limit', async () => {
    // 30 is beyond any log-probability by more than 20; the last group's references are as they were.
    const far = groups.map((group, i): TokenTrainGroup => ({
      ...group,
      targets: group.targets.map((target) => ({
        ...target,
        reference: i < 2 ? known(new Float32Array(target.weights.length).fill(30)) : target.reference,
      })),
    }));
    const weighted = far.slice(0, 2).flatMap(({ targets }) => targets.flatMap(({ weights }) => [...weights]));
    const made = learner(8);
    const clamped = async (loss: LossSpec, of = far): Promise<number> => (await made.learn(of, loss)).klClamped;
    expect(await clamped(grpo)).toBe(weighted.filter((w) => w !== 0).length);
    expect(await clamped(grpo, groups)).toBe(0);
    expect(await clamped({ policy: 'ratio', clip: null, kl })).toBe(weighted.filter((w) => w !== 0).length);
    expect(await clamped({ policy: 'likelihood' })).toBe(0);

    // The distance counts, which is to a token's own log-probability.
    const [lesson] = groups;
    const [statistics] = await made.statistics([lesson], model.weights);
    const near = (by: number): TokenTrainGroup => ({
      ...lesson,
      targets: lesson.targets.map((target, g) => ({
        ...target,
        reference: known(statistics[g].logProbs.map((logProb) => logProb + by)),
      })),
    });
    const weightedHere = lesson.targets.flatMap(({ weights }) => [...weights]).filter((w) => w !== 0).length;
    expect(await clamped(grpo, [near(20.01)])).toBe(weightedHere);
    expect(await clamped(grpo, [near(19.99)])).toBe(0);
    await made.dispose();
  });

  const layouts: { of: [number, number, number]; microBatch: number; prompts: number; answersPerPrompt: number }[] = [
    { of: [8, 8, 8], microBatch: 16, prompts: 2, answersPerPrompt: 8 },
    { of: [8, 8, 8], microBatch: 8, prompts: 1, answersPerPrompt: 8 },
    { of: [8, 8, 8], microBatch: 6, prompts: 1, answersPerPrompt: 4 },
    { of: [9, 9, 4], microBatch: 6, prompts: 2, answersPerPrompt: 3 },
    { of: [5, 5, 5], microBatch: 3, prompts: 3, answersPerPrompt: 1 },
    { of: [2, 4, 1], microBatch: 12, prompts: 3, answersPerPrompt: 4 },
  ];
  it.each(layouts)(
    'has $prompts x $answersPerPrompt answers in a micro-batch of $microBatch, of groups of $of',
    async ({ of, microBatch, prompts, answersPerPrompt }) => {
      const made = learner(microBatch);
      const written = vi.spyOn(made, 'lossGraph');
      await made.learn(makeGroups(...of), grpo);
      expect(written.mock.calls.map(([, shape]) => shape)).toEqual([
        expect.objectContaining({ prompts, answersPerPrompt }),
      ]);
      await made.dispose();
    },
  );

  it('compiles once for all widths, whose bits do not depend on what was learned before', async () => {
    const ort = await import('onnxruntime-node');
    const longer = groups.map(({ prompt, answers, targets }): TokenTrainGroup => {
      const twice = (values: Float32Array): Float32Array => Float32Array.of(...values, ...values, ...values);
      return {
        prompt,
        answers: answers.map(({ ids }) => ({ ids: Int32Array.of(...ids, ...ids, ...ids) })),
        targets: targets.map(({ weights, advantages }) => ({
          weights: twice(weights),
          advantages,
          reference: null,
          old: null,
        })),
      };
    });
    const loss = { policy: 'reinforce', kl: null } as const;
    const fresh = await gradientOf(loss, { microBatch: 8, of: longer });
    const made = learner(8);
    await made.statistics(groups, model.weights);
    await learnt(made, groups, loss);
    const create = vi.spyOn(ort.InferenceSession, 'create');
    const shapes = vi.spyOn(made, 'lossGraph');
    await made.statistics(longer, model.weights);
    const after = await learnt(made, longer, loss);
    expect(shapes).toHaveBeenCalledOnce();
    expect(create).not.toHaveBeenCalled();
    create.mockRestore();
    expect(after.loss).toBe(fresh.loss);
    expect(after.statistics).toEqual(fresh.statistics);
    expect(after.gradients).toEqual(fresh.gradients);
    await made.dispose();
  });

  it.each([
    [2, 'of which one has none', groups.slice(0, 1), 8, 0],
    [2, 'of which each has several', groups, 2, 1e-6],
    [4, 'of which each has several', groups, 2, 1e-6],
  ])('learns the same on %i ranks that share the micro-batches, %s', async (ranks, _, of, microBatch, tolerance) => {
    const single = await gradientOf(grpo, { microBatch, of });
    const shared = await onRanks(ranks, async (peers) => {
      const made = learnerOf(model, { ...learner(microBatch).options, peers });
      // Leaves its sums in the arrays that the next call writes into, and no arrays on a rank without a micro-batch.
      await learnt(made, groups.slice(0, 1), grpo);
      const result = await learnt(made, of, grpo);
      await made.dispose();
      return result;
    });
    for (const one of shared) {
      expect(one.loss).toBe(single.loss);
      expect(one.statistics).toEqual(single.statistics);
      expect([...one.gradients.keys()]).toEqual([...single.gradients.keys()]);
      expect(gradientDifference(single.gradients, one.gradients)).toBeLessThanOrEqual(tolerance);
      expect(one.gradients).toEqual(shared[0].gradients);
    }
  });

  it('has nothing of padding or of tokens without weight, however improbable they are', async () => {
    const sharp = {
      ...model,
      weights: new Map(
        [...model.weights].map(([name, { shape, data }]) => [
          name,
          { shape, data: name === 'lm_head.weight' ? data.map((x) => 400 * x) : data },
        ]),
      ),
    };
    const made = learnerOf(sharp, { temperature, separateVocabularies: true });
    const answersOf = (length: number, token: number | null): { ids: Int32Array }[] =>
      Array.from({ length: 2 }, (_, g) => ({
        ids: Int32Array.from({ length }, (_, t) => token ?? (5 * t + 3 * g + 1) % space.size),
      }));
    const prompt = { tokens: textPrompt(space) };
    const short = { prompt, answers: answersOf(4, null) };
    const long = { prompt, answers: answersOf(12, 0) };
    const [own, zeros] = await made.statistics([short, long], sharp.weights);
    // exp of the difference to a reference of 0 overflows.
    expect(Math.min(...zeros.flatMap(({ logProbs }) => [...logProbs]))).toBeLessThan(-89);
    const targets = own.map(({ logProbs }) => ({
      weights: new Float32Array(4).fill(0.1),
      advantages: 1,
      reference: known(logProbs),
      old: null,
    }));
    const idle: Target = {
      weights: new Float32Array(12),
      advantages: 1,
      reference: known(new Float32Array(12)),
      old: null,
    };
    const loss: LossSpec = { policy: 'reinforce', kl: { coefficient: 0.1 } };
    // Alone the short answers fill their columns; beside the long ones two thirds of their rows are padding.
    const single = await learnt(made, [{ ...short, targets }], loss);
    const padded = await learnt(
      made,
      [
        { ...short, targets },
        { ...long, targets: [idle, idle] },
      ],
      loss,
    );
    expect(padded.loss).toBeCloseTo(single.loss, 3);
    expect([...padded.gradients.values()].every((gradient) => gradient.every(Number.isFinite))).toBe(true);
    const most = Math.max(...[...single.gradients.values()].flatMap((gradient) => [...gradient.map(Math.abs)]));
    expect(gradientDifference(single.gradients, padded.gradients)).toBeLessThan(1e-5 * most);
    const nothing = await learnt(made, [{ ...long, targets: [idle, idle] }], loss);
    expect([...nothing.gradients.values()].every((gradient) => gradient.every((g) => g === 0))).toBe(true);
    await made.dispose();
  });

  it('measures other weights of the same architecture, and entropies as they are defined', async () => {
    const other = smallModel(space, 2).weights;
    const made = learner(8);
    const [statistics] = await made.statistics([groups[0]], other);
    await made.dispose();
    const { ids } = groups[0].answers[0];
    plainLogProbs(other, groups[0], 0, true).forEach((x, t) => expect(statistics[0].logProbs[t]).toBeCloseTo(x, 4));
    const sequence = [...groups[0].prompt.tokens.ids, ...ids.subarray(0, -1)];
    referenceLogits(model.config, other, sequence, ids.length).forEach((logits, t) => {
      const x = logits.filter((_, v) => space.isVision(v) === space.isVision(ids[t])).map((l) => l / temperature);
      const total = x.reduce((sum, value) => sum + Math.exp(value), 0);
      const entropy = x.reduce((sum, v) => sum - (Math.exp(v) / total) * (v - Math.log(total)), 0);
      expect(statistics[0].entropy[t]).toBeCloseTo(entropy, 4);
    });
  });

  it('gives a token the same bits in every part of an iteration', async () => {
    const lessons = [9, 1, 5, 14].flatMap((words, i): TokenTrainGroup[] => {
      const instruction = Array.from({ length: words }, () => 'red').join(' ');
      const { answers, targets } = groups[i % groups.length];
      const longer = answers.map(({ ids }) => ({
        ids: Int32Array.from({ length: ids.length + 4 * i }, (_, t) => ids[t % ids.length]),
      }));
      const shares = targets.map((target, g) => ({
        ...target,
        weights: new Float32Array(longer[g].ids.length).fill(0.01),
      }));
      return [{ prompt: { tokens: textPrompt(space, instruction) }, answers: longer, targets: shares }];
    });
    const made = learner(4);
    const whole = await made.statistics(lessons, model.weights);
    // A minibatch of whole groups, and one of some answers of each.
    const some = lessons.map(({ prompt, answers, targets }) => {
      return { prompt, answers: answers.slice(2, 5), targets: targets.slice(2, 5) };
    });
    const expected = { few: whole.slice(1, 3), some: whole.map((group) => group.slice(2, 5)) };
    const loss: LossSpec = { policy: 'likelihood' };
    expect(await made.statistics(lessons.slice(1, 3), model.weights, lessons)).toEqual(expected.few);
    expect((await made.learn(lessons.slice(1, 3), loss, lessons)).statistics).toEqual(expected.few);
    expect((await made.learn(some, loss, lessons)).statistics).toEqual(expected.some);
    expect(await made.statistics(lessons.slice(1, 3), model.weights)).not.toEqual(expected.few);
    await made.dispose();
  });
});
