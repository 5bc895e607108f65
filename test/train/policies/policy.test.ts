/** A token policy as training sees it: whose weights it uses, what a step takes, what a checkpoint holds, and on several ranks. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import type { LossSpec } from '../../../src/train/policies/losses/table.js';
import type { TokenGroup } from '../../../src/train/policies/tokens/batch.js';
import type { Emu3Prompt } from '../../../src/train/policies/tokens/emu3.js';
import { FreeText } from '../../../src/models/tokenizer/format.js';
import type { TokenLesson } from '../../../src/train/policies/tokens/learner.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { TokenPolicy, type TokenPolicyOptions } from '../../../src/train/policies/tokens/policy.js';
import { WordTokenizer, wordTokenizerJson } from '../../../src/models/tokenizer/words.js';
import { liveSessions } from '../../compute/onnx/live_sessions.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolder } from '../../support/folder.js';
import { openPrompt, smallModel, smallSpace, textPrompt } from './small_policy.js';

afterEach(() => vi.restoreAllMocks());

const space = smallSpace();
const kl = { coefficient: 0.1, estimator: 'k3' } as const;
const loss: LossSpec = { policy: 'reinforce', kl };
const session = { threads: 1 };

function policyOf<P extends { ids: readonly number[] }>(
  model: PolicyModel<P>,
  options: Partial<TokenPolicyOptions<P>> & { ema_decay?: number } = {},
): TokenPolicy<P> {
  return new TokenPolicy({
    model,
    optimizer: {
      learning_rate: 0.01,
      betas: [0.9, 0.999],
      eps: 1e-8,
      weight_decay: 0,
      max_grad_norm: 1,
      per_device_batch_size: 2,
      schedule: 'constant',
      decay_steps: null,
      min_learning_rate_ratio: 0,
      gradient_checkpointing: false,
      ema_decay: options.ema_decay ?? null,
    },
    contextSize: 100,
    constrained: true,
    separateVocabularies: true,
    learner: { temperature: 1, microBatch: 2, gradientCheckpointing: false },
    sessions: { sampling: session, learning: session },
    keepReference: true,
    ...options,
  });
}

const asked = [openPrompt(space), textPrompt(space), openPrompt(space, 'remove', 2)].map((tokens) => ({ tokens }));
const lessons: TokenLesson[] = asked.map((prompt, p) => {
  const answers = Array.from({ length: 4 }, (_, g) => ({
    ids: Int32Array.from({ length: 3 + ((p + g) % 4) }, (_, t) => (7 * t + 5 * g + p + 1) % space.size),
  }));
  const targets = answers.map(({ ids }, g) => ({
    weights: new Float32Array(ids.length).fill(0.02),
    advantages: g - p - 0.7,
    reference: { logProbs: new Float32Array(ids.length).fill(-2) },
    old: null,
  }));
  return { prompt, answers, targets };
});

const sampleOf = (policy: TokenPolicy<Emu3Prompt>, weights: 'current' | 'average') =>
  policy.sample({
    prompts: asked,
    among: asked,
    answersPerPrompt: 2,
    how: { temperature: 0.8, topP: 1, topK: -1, maxTokens: 18, logProbTemperature: 1 },
    weights,
    random: (p, g) => new RandomStream('policy', p, g),
  });

describe('a token policy', () => {
  it('samples and measures with its current weights, their average or its start, each where it keeps it', async () => {
    const policy = policyOf(smallModel(space), { ema_decay: 0.5 });
    expect(policy.capabilities).toMatchObject({ reference: true, average: true });
    const start = await policy.statistics(lessons, 'reference');
    expect(await policy.statistics(lessons, 'current')).toEqual(start);
    const first = await sampleOf(policy, 'current');
    for (let i = 0; i < 3; i++) {
      await policy.learn(lessons, loss);
      expect(await policy.step(0.05)).toMatchObject({ applied: true });
    }
    expect(policy.steps).toBe(3);
    expect(await policy.statistics(lessons, 'reference')).toEqual(start);
    const [current, average] = [
      await policy.statistics(lessons, 'current'),
      await policy.statistics(lessons, 'average'),
    ];
    const [now, then] = [await sampleOf(policy, 'current'), await sampleOf(policy, 'average')];
    expect(new Set([start, current, average].map((one) => one[0][0].logProbs[0])).size).toBe(3);
    expect(new Set([first, now, then].map((one) => one[0][0].logProbs[0])).size).toBe(3);
    await policy.dispose();

    const plain = policyOf(smallModel(space), { keepReference: false });
    expect(plain.capabilities).toMatchObject({ reference: false, average: false });
    expect(() => plain.statistics(lessons, 'reference')).toThrow(/keeps no reference/);
    expect(() => sampleOf(plain, 'average')).toThrow(InternalError);
    await expect(plain.step(0.1)).rejects.toThrow(/without anything learnt/);
    await plain.dispose();
  });

  it('goes on bit for bit from its files, and measures to its own start', async () => {
    const folder = testFolder('policy');
    const [straight, first, second] = [1, 2, 3].map(() => policyOf(smallModel(space), { ema_decay: 0.9 }));
    const train = async (policy: TokenPolicy<Emu3Prompt>, steps: number): Promise<void> => {
      for (let i = 0; i < steps; i++) {
        await policy.learn(lessons, loss);
        await policy.step(0.02);
      }
    };
    await train(straight, 4);
    await train(first, 2);
    expect((await first.files())['config.json']).toBe(`${JSON.stringify(smallModel(space).config, null, 2)}\n`);
    expect((await first.files())['tokenizer.json']).toBe(space.tokenizer.json);
    writeCheckpoint(folder, await first.files());
    await second.restore(folder, 2);
    expect(await second.checksum()).toBe(await first.checksum());
    await train(second, 2);
    expect(await second.checksum()).toBe(await straight.checksum());
    expect(await second.files()).toEqual(await straight.files());
    expect(await second.statistics(lessons, 'reference')).toEqual(await straight.statistics(lessons, 'reference'));
    await Promise.all([straight, first, second].map((policy) => policy.dispose()));
  });

  it('packs all weights once while they stay the same, and never samples with those of before', async () => {
    const live = liveSessions(({ externalData = [] }) => externalData.length > 0);
    const folder = testFolder('packed');
    const [policy, resumed] = [1, 2].map(() => policyOf(smallModel(space), { packed: 'all', ema_decay: 0.5 }));
    const start = await sampleOf(policy, 'current');
    expect(await sampleOf(policy, 'current')).toEqual(start);
    expect(live).toEqual({ made: 1, now: 1, most: 1 });
    for (const steps of [1, 2]) {
      await policy.learn(lessons, loss);
      await policy.step(0.05);
      const now = await sampleOf(policy, 'current');
      expect(await sampleOf(policy, 'current')).toEqual(now);
      const average = await sampleOf(policy, 'average');
      expect(live).toEqual({ made: 1 + 2 * steps, now: 1, most: 1 });
      expect(new Set([start, now, average].map((one) => one[0][0].logProbs[0])).size).toBe(3);
    }
    const [now, average] = [await sampleOf(policy, 'current'), await sampleOf(policy, 'average')];
    writeCheckpoint(folder, await policy.files());
    await policy.dispose();
    expect(live.now).toBe(0);
    expect(await sampleOf(resumed, 'current')).toEqual(start);
    await resumed.restore(folder, 2);
    expect(await sampleOf(resumed, 'current')).toEqual(now);
    expect(await sampleOf(resumed, 'average')).toEqual(average);
    await resumed.dispose();
    expect(live).toMatchObject({ now: 0, most: 1 });
  });

  it('writes free text until its end token, where any word may follow', async () => {
    const words = new WordTokenizer(wordTokenizerJson(['<end>'], ['a', 'b', 'c']), 'words');
    const format = new FreeText(words, new Set([words.id('<end>')]));
    const { config } = smallModel(space);
    const model: PolicyModel = { ...smallModel(space), config: { ...config, vocab_size: format.size }, format };
    const sizes = new Map(
      [...model.weights].map(([name, { shape, data }]) => {
        const rows = shape[0] === config.vocab_size ? format.size : shape[0];
        const width = data.length / shape[0];
        return [name, { shape: [rows, ...shape.slice(1)], data: data.slice(0, rows * width) }];
      }),
    );
    const policy = policyOf({ ...model, weights: sizes });
    const prompts = [{ tokens: { ids: words.encode('a b') } }];
    const [answers] = await policy.sample({
      prompts,
      among: prompts,
      answersPerPrompt: 40,
      how: { temperature: 2, topP: 1, topK: -1, maxTokens: 12, logProbTemperature: 1 },
      weights: 'current',
      random: (p, g) => new RandomStream('words', p, g),
    });
    const found = new Set(answers.flatMap(({ ids }) => [...ids]));
    expect([...found].sort()).toEqual([0, 1, 2, 3, 4]);
    expect(new Set(answers.map(({ finished }) => finished)).size).toBe(2);
    for (const { ids, finished } of answers) expect(ids.indexOf(1)).toBe(finished ? ids.length - 1 : -1);
    const group: TokenGroup = { prompt: prompts[0], answers };
    const [statistics] = await policy.statistics([group], 'current');
    answers.forEach(({ logProbs }, g) =>
      logProbs.forEach((x, t) => expect(Math.abs(x - statistics[g].logProbs[t])).toBeLessThan(1e-4)),
    );
    await policy.dispose();
  });
});
