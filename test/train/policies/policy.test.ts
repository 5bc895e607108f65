/** A token policy as training sees it: whose weights it uses, what a step takes, what a checkpoint holds, and on several ranks. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { InternalError } from '../../../src/core/errors.js';
import { RandomStream } from '../../../src/core/random.js';
import type { LossSpec } from '../../../src/train/policies/losses/table.js';
import type { Emu3Prompt } from '../../../src/train/policies/tokens/emu3.js';
import type { TokenTrainGroup } from '../../../src/train/policies/tokens/learner.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import type { TokenPolicy, TokenPolicyOptions } from '../../../src/train/policies/tokens/policy.js';
import { liveSessions } from '../../compute/onnx/live_sessions.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolder } from '../../support/folder.js';
import { optimizer, tokenPolicy } from './small_lesson.js';
import { openPrompt, smallModel, smallSpace, textPrompt } from './small_policy.js';

afterEach(() => vi.restoreAllMocks());

const space = smallSpace();
const kl = { coefficient: 0.1 };
const loss: LossSpec = { policy: 'reinforce', kl };

function policyOf<P extends { ids: readonly number[] }>(
  model: PolicyModel<P>,
  options: Partial<TokenPolicyOptions<P>> & { ema_decay?: number } = {},
): TokenPolicy<P> {
  return tokenPolicy(model, {
    optimizer: { ...optimizer, ema_decay: options.ema_decay ?? null },
    contextSize: 100,
    constrained: true,
    separateVocabularies: true,
    ...options,
  });
}

const asked = [openPrompt(space), textPrompt(space), openPrompt(space, 'remove', 2)].map((tokens) => ({ tokens }));
const lessons: TokenTrainGroup[] = asked.map((prompt, p) => {
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
    await expect(plain.step(0.1)).rejects.toThrow(/without a gradient/);
    await plain.dispose();
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
    const files = await policy.files();
    expect(files['config.json']).toBe(`${JSON.stringify(smallModel(space).config, null, 2)}\n`);
    expect(files['tokenizer.json']).toBe(space.tokenizer.json);
    writeCheckpoint(folder, files);
    await policy.dispose();
    expect(live.now).toBe(0);
    expect(await sampleOf(resumed, 'current')).toEqual(start);
    await resumed.restore(folder, 2);
    expect(await sampleOf(resumed, 'current')).toEqual(now);
    expect(await sampleOf(resumed, 'average')).toEqual(average);
    await resumed.dispose();
    expect(live).toMatchObject({ now: 0, most: 1 });
  });
});
