/** Sampling as with a real language model: a large vocabulary, an adapter over frozen weights, answers longer than the first caches. */
import { afterAll, describe, expect, it, vi } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { TensorCell } from '../../../src/compute/onnx/tensors.js';
import { isAdapters } from '../../../src/compute/nets/lora.js';
import { initDecoder, type DecoderConfig } from '../../../src/compute/nets/decoder/config.js';
import { adapt } from '../../../src/models/adapters/decoder.js';
import type { TokenAnswer } from '../../../src/train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../src/models/tokenizer/format.js';
import { unrestricted, type TokenFormat } from '../../../src/models/tokenizer/format.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { Sampler, type SamplerOptions } from '../../../src/train/policies/tokens/rollout.js';
import type { TokenSampling } from '../../../src/train/policies/tokens/sampling.js';
import { learnerOf } from './small_lesson.js';

const VOCABULARY = 2400;
const base: DecoderConfig = {
  vocab_size: VOCABULARY,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 8,
  rope_theta: 10000,
  rms_norm_eps: 1e-6,
  attention_bias: false,
  tie_word_embeddings: true,
};
const format: TokenFormat = {
  size: VOCABULARY,
  ends: new Set([0]),
  secondPart: null,
  tokenizerFiles: {},
  start: () => unrestricted,
};

function model(): PolicyModel {
  const frozen = initDecoder(base, { embedding_std: 0.7, initializer_range: 0.3 }, 1);
  const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' };
  const { config, weights } = adapt(base, frozen, lora, { seed: 2 });
  for (const [name, { data }] of weights) {
    if (name.endsWith('lora_B.weight')) data.forEach((_, i) => (data[i] = 0.1 * Math.sin(i)));
  }
  return { config, weights, format, adapter: { lora, base: '', baseDigest: '' } };
}

const policy = model();
const how: TokenSampling = { maxTokens: 75, temperature: 0.9, topP: 1, topK: -1, logProbTemperature: 0.9 };
const prompts = [3, 5, 4].map((length, p) => ({
  tokens: { ids: Array.from({ length }, (_, i) => 7 + ((i * 31 + p * 577) % 2000)) },
}));
const samplerWith = (changes: Partial<SamplerOptions> = {}): Sampler<TokenPrompt> =>
  new Sampler(policy, {
    contextSize: 100,
    constrained: true,
    separateVocabularies: false,
    session: { threads: 1 },
    ...changes,
  });
const sampler = samplerWith();
afterAll(() => sampler.dispose());

function sample(start = 0, end = prompts.length, manner = how, by = sampler): Promise<TokenAnswer[][]> {
  const random = (p: number, g: number): RandomStream => new RandomStream(4, start + p, g);
  const asked = { prompts: prompts.slice(start, end), among: prompts, answersPerPrompt: 2, how: manner, random };
  return by.sample({ ...asked, weights: 'current' }, policy.weights, 'made');
}

describe('sampling from a large vocabulary with an adapter', () => {
  it('records the log-probabilities that the learner finds, in answers that outgrow the first caches', async () => {
    const answers = await sample();
    expect(Math.max(...answers.flat().map(({ ids }) => ids.length))).toBe(75);
    const learner = learnerOf(policy, { temperature: 0.9 });
    const statistics = await learner.statistics(
      prompts.map((prompt, p) => ({ prompt, answers: answers[p] })),
      policy.weights,
    );
    await learner.dispose();
    answers.forEach((group, p) =>
      group.forEach(({ logProbs }, g) =>
        logProbs.forEach((x, t) => expect(Math.abs(x - statistics[p][g].logProbs[t])).toBeLessThan(1e-4)),
      ),
    );
  });

  it('has the same bits whatever the chunks', async () => {
    const whole = await sample();
    const apart = [...(await sample(0, 1)), ...(await sample(1, 3))];
    expect(apart).toEqual(whole);
  });

  it('has the same bits if steps return new caches, which are freed with the last answer', async () => {
    const put = vi.spyOn(TensorCell.prototype, 'put');
    const frozen = new Set([...policy.weights.keys()].filter((name) => !isAdapters(name)));
    const inCells = samplerWith({ caches: 'cells', session: { threads: 1, frozen } });
    const inArrays = samplerWith();
    expect(await sample(0, 3, how, inCells)).toEqual(await sample(0, 3, how, inArrays));
    const cells = [...new Set(put.mock.contexts as TensorCell[])];
    vi.restoreAllMocks();
    // A cell that holds a tensor raises for this type.
    const holds = (cell: TensorCell): boolean => {
      try {
        cell.read('it', { dtype: 'bool', shape: [0] });
        return false;
      } catch (error) {
        return !(error as Error).message.includes('before anything is in it');
      }
    };
    const adapters = policy.weights.size - frozen.size;
    // Of two layers: keys and values, of prompts and of answers.
    expect([cells.length, cells.filter(holds).length]).toEqual([adapters + 8, adapters]);
    await Promise.all([inCells.dispose(), inArrays.dispose()]);
    expect(cells.filter(holds)).toEqual([]);
  });

  it('compiles once, whatever the chunks, the widths and the manner', async () => {
    const ort = await import('onnxruntime-node');
    await sample();
    const create = vi.spyOn(ort.InferenceSession, 'create');
    const reads = vi.spyOn(Session.prototype, 'run');
    await sample(0, 2, { ...how, maxTokens: 20 });
    await sample(0, 1, { ...how, temperature: 0, logProbTemperature: 1 });
    expect(create).not.toHaveBeenCalled();
    const widths = reads.mock.calls.flatMap(
      ([feeds]) => (feeds['answer_padding'] as Float32Array | undefined)?.length ?? [],
    );
    expect([...new Set(widths)]).toEqual([20, 64, 80]);
    vi.restoreAllMocks();
  });

  it('follows an adapter that training changes', async () => {
    const before = await sample();
    const changed = [...policy.weights].filter(([name]) => name.endsWith('lora_B.weight'));
    for (const [, { data }] of changed) data.forEach((x, i) => (data[i] = -x));
    const after = await sample();
    for (const [, { data }] of changed) data.forEach((x, i) => (data[i] = -x));
    expect(after).not.toEqual(before);
    expect(await sample()).toEqual(before);
  });
});
