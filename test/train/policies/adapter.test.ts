import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { floatsToHalves, HalfTensor, halvesToFloats } from '../../../src/core/half.js';
import { readSafetensors } from '../../../src/core/safetensors.js';
import { RandomStream } from '../../../src/core/random.js';
import type { Weights } from '../../../src/models/files.js';
import { openDecoder } from '../../../src/models/networks/decoder.js';
import { adapterOf, isAdapters, type LoraSettings } from '../../../src/compute/nets/lora.js';
import { digestOfWeights, readAdapterConfig, recordedBase } from '../../../src/models/adapters/files.js';
import { adapt, adaptFrom, describeModel, openModel } from '../../../src/models/adapters/decoder.js';
import { type TokenFormat, unrestricted } from '../../../src/models/tokenizer/format.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { Sampler } from '../../../src/train/policies/tokens/rollout.js';
import type { TokenPolicy } from '../../../src/train/policies/tokens/policy.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { group, learnerOf, lesson, optimizer, tokenPolicy } from './small_lesson.js';

const models = fileURLToPath(new URL('../../compute/nets/decoder/fixtures', import.meta.url));
const adapters = fileURLToPath(new URL('./adapters', import.meta.url));
const root = mkdtempSync(join(tmpdir(), 'editrl-adapter-'));
afterAll(() => rmSync(root, { recursive: true }));

const session = { threads: 1 };

function format(size: number): TokenFormat {
  return {
    size,
    secondPart: null,
    ends: new Set([2]),
    tokenizerFiles: { 'tokenizer.json': '{}' },
    start: () => unrestricted,
  };
}

interface Expected {
  readonly model: string;
  readonly ids: readonly (readonly number[])[];
  readonly logits: readonly (readonly (readonly number[])[])[];
  readonly gradients: Readonly<Record<string, readonly number[]>>;
}

/** A fixture's base with what peft saved over it. */
function opened(name: string): { model: PolicyModel; expected: Expected; lora: LoraSettings } {
  const folder = join(adapters, name);
  const expected = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as Expected;
  const { lora, base } = readAdapterConfig(folder);
  const decoder = openDecoder(join(models, base));
  const { config, weights } = adaptFrom(decoder.config, decoder.weights, folder);
  const adapter = { lora, base, baseDigest: 'of the base' };
  return { model: { config, weights, format: format(config.vocab_size), adapter }, expected, lora };
}

/** Largest difference, relative to the largest value. */
function worst(found: ArrayLike<number>, wanted: ArrayLike<number>): number {
  let [difference, largest] = [0, 0];
  for (let i = 0; i < wanted.length; i++) {
    difference = Math.max(difference, Math.abs(found[i] - wanted[i]));
    largest = Math.max(largest, Math.abs(wanted[i]));
  }
  return difference / largest;
}

describe.each(['all_linear', 'rslora'])('an adapter that peft saved: %s', (name) => {
  const { model, expected } = opened(name);
  // The first token is the prompt, the others are the answer.
  const groups = expected.ids.map((ids) => ({
    prompt: { tokens: { ids: ids.slice(0, 1) } },
    answers: [{ ids: Int32Array.from(ids.slice(1)) }],
  }));
  const learner = learnerOf(model);
  afterAll(() => learner.dispose());

  it('gives the log-probabilities of peft', async () => {
    const found = await learner.statistics(groups, model.weights);
    const wanted = expected.logits.map((rows, i) =>
      rows.slice(0, -1).map((row, t) => {
        const top = Math.max(...row);
        const total = row.reduce((sum, x) => sum + Math.exp(x - top), 0);
        return row[expected.ids[i][t + 1]] - top - Math.log(total);
      }),
    );
    wanted.forEach((row, i) => expect(worst(found[i][0].logProbs, row)).toBeLessThan(1e-4));
  });

  it("has peft's gradients to 1e-3, and those of nothing else", async () => {
    const lessons = groups.map((group) => ({
      ...group,
      targets: group.answers.map(({ ids }) => ({
        weights: new Float32Array(ids.length).fill(1),
        advantages: 0,
        reference: null,
        old: null,
      })),
    }));
    await learner.learn(lessons, { policy: 'likelihood' });
    const found = await learner.gradients();
    expect([...found.keys()].sort()).toEqual(Object.keys(expected.gradients).sort());
    for (const [parameter, wanted] of Object.entries(expected.gradients)) {
      // The loss is the negative of what was differentiated there.
      const negated = found.get(parameter)!.map((x) => -x);
      expect(worst(negated, wanted), parameter).toBeLessThan(1e-3);
    }
  });
});

describe('an adapter in weights that are packed to sample with', () => {
  it('gives the answers and log-probabilities that it gives beside them, those of its version', async () => {
    const { model } = opened('all_linear');
    const prompt = { tokens: { ids: [1, 5, 9] } };
    const sample = async (packed: 'none' | 'all', scale: number) => {
      const sampler = new Sampler(model, { contextSize: 32, constrained: false, separateVocabularies: false, session, packed }); // prettier-ignore
      const request = {
        prompts: [prompt],
        among: [prompt],
        answersPerPrompt: 3,
        how: { temperature: 1, topP: 1, topK: -1, maxTokens: 12, logProbTemperature: 1 },
        random: (p: number, a: number) => new RandomStream('packed', p, a),
        weights: 'current',
      } as const;
      const by = (factor: number): Weights =>
        new Map(
          [...model.weights].map(([name, { shape, data }]) => [
            name,
            { shape, data: isAdapters(name) ? data.map((x) => factor * x) : data },
          ]),
        );
      await sampler.sample(request, by(0), 'before');
      const [answers] = await sampler.sample(request, by(scale), 'after');
      await sampler.dispose();
      return answers;
    };
    const [beside, within, without] = await Promise.all([sample('none', 1), sample('all', 1), sample('all', 0)]);
    expect(within.map(({ ids }) => ids)).toEqual(beside.map(({ ids }) => ids));
    within.forEach(({ logProbs }, i) => expect(worst(logProbs, beside[i].logProbs)).toBeLessThan(1e-5));
    expect(without).not.toEqual(within);
  });
});

function policyOf(model: PolicyModel, ema_decay: number | null = null, packed: 'all' | 'none' = 'all'): TokenPolicy {
  return tokenPolicy(model, { optimizer: { ...optimizer, ema_decay }, packed });
}

const lora: LoraSettings = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' };

function fresh(): PolicyModel {
  const base = join(models, 'llama3');
  const decoder = openDecoder(base);
  const { config, weights } = adapt(decoder.config, decoder.weights, lora, { seed: 7 });
  const baseDigest = digestOfWeights(base);
  return { config, weights, format: format(config.vocab_size), adapter: { lora, base, baseDigest } };
}

async function save(policy: TokenPolicy, folder: string): Promise<void> {
  writeCheckpoint(folder, await policy.files());
}

describe('a policy with an adapter over weights that are stored in half precision', () => {
  const base = join(models, 'llama3');
  /** A fresh adapter over the base's matrices in half precision, and over float32 of the same values. */
  function both(): [half: PolicyModel, widened: PolicyModel] {
    const half = new Map([...fresh().weights, ...openModel(base, 'words', 'float16').weights]);
    const widened = [...half].map(([name, { shape, data }]) => [name, { shape, data: data.slice() }] as const);
    return [
      { ...fresh(), weights: half },
      { ...fresh(), weights: new Map(widened) },
    ];
  }

  it('samples, computes log-probabilities and learns to the bit as over float32 of these values', async () => {
    const policies = both().map((model) => policyOf(model, null, 'none'));
    const [half, wide] = policies;
    const did = async (policy: TokenPolicy) => {
      const prompt = { tokens: group.prompt.tokens };
      await policy.learn([lesson], { policy: 'reinforce', kl: null });
      await policy.step(0.05);
      const request = {
        prompts: [prompt],
        among: [prompt],
        answersPerPrompt: 2,
        how: { temperature: 1, topP: 1, topK: -1, maxTokens: 6, logProbTemperature: 1 },
        random: (p: number, a: number) => new RandomStream('half', p, a),
        weights: 'current',
      } as const;
      return {
        checksum: await policy.checksum(),
        current: await policy.statistics([group], 'current'),
        reference: await policy.statistics([group], 'reference'),
        sampled: await policy.sample(request),
        states: await policy.read([{ prompt: prompt.tokens, answer: Int32Array.of(4, 8, 2), from: 0 }], 'current'),
      };
    };
    const [found, wanted] = [await did(half), await did(wide)];
    expect(found).toEqual(wanted);
    expect(found.current).not.toEqual(found.reference);
    await Promise.all(policies.map((policy) => policy.dispose()));
  });

  it('is over the merged weights of an adapter that it stands on, rounded', async () => {
    const folder = mkdtempSync(join(root, 'checkpoint-'));
    const policy = policyOf(fresh());
    await policy.learn([lesson], { policy: 'reinforce', kl: null });
    await policy.step(0.05);
    await save(policy, folder);
    await policy.dispose();
    const [merged, half] = [openModel(folder).weights, openModel(folder, 'words', 'float16').weights];
    const name = 'model.layers.0.self_attn.q_proj.weight';
    expect(half.get(name)).toBeInstanceOf(HalfTensor);
    expect(half.get(name)!.data).toEqual(halvesToFloats(floatsToHalves(merged.get(name)!.data)));
    expect(half.get(name)!.data).not.toEqual(openModel(base, 'words', 'float16').weights.get(name)!.data);
  });
});

describe('a policy with an adapter', () => {
  it('starts as its base, leaves the frozen weights as they are to the bit, and has its base for a reference', async () => {
    const model = fresh();
    const frozen = new Map([...model.weights].map(([name, { data }]) => [name, data.slice()]));
    const policy = policyOf(model, 0.5);
    const before = await policy.statistics([group], 'current');
    expect(await policy.statistics([group], 'reference')).toEqual(before);
    for (let step = 0; step < 3; step++) {
      await policy.learn([lesson], { policy: 'reinforce', kl: null });
      expect((await policy.step(0.05)).applied).toBe(true);
    }
    const after = await policy.statistics([group], 'current');
    expect(after).not.toEqual(before);
    expect(await policy.statistics([group], 'reference')).toEqual(before);
    const averaged = await policy.statistics([group], 'average');
    expect(averaged).not.toEqual(before);
    expect(averaged).not.toEqual(after);
    for (const [name, { data }] of model.weights) {
      if (isAdapters(name)) expect(data, name).not.toEqual(frozen.get(name));
      else expect(data, name).toEqual(frozen.get(name));
    }
    await policy.dispose();
  });

  it("is written in PEFT's layout, the adapter alone, and continues to the bit", async () => {
    const folder = mkdtempSync(join(root, 'checkpoint-'));
    const policy = policyOf(fresh());
    await policy.learn([lesson], { policy: 'reinforce', kl: null });
    await policy.step(0.05);
    await save(policy, folder);
    const again = policyOf(fresh());
    await again.restore(folder, 1);
    expect(await again.checksum()).toBe(await policy.checksum());
    for (const one of [policy, again]) {
      await one.learn([lesson], { policy: 'reinforce', kl: null });
      await one.step(0.05);
    }
    expect(await again.checksum()).toBe(await policy.checksum());
    const stored = readSafetensors(join(folder, 'adapter_model.safetensors'));
    expect([...stored.keys()].every((name) => /^base_model\.model\..*\.lora_[AB]\.weight$/.test(name))).toBe(true);
    expect(readAdapterConfig(folder)).toMatchObject({ lora, base: join(models, 'llama3') });
    expect(recordedBase(folder)).toBe(digestOfWeights(join(models, 'llama3')));
    await Promise.all([policy.dispose(), again.dispose()]);
  });

  it('is a model of its own once it is written, which an adapter can stand on again', async () => {
    const folder = mkdtempSync(join(root, 'checkpoint-'));
    const policy = policyOf(fresh());
    await policy.learn([lesson], { policy: 'reinforce', kl: null });
    await policy.step(0.05);
    await save(policy, folder);
    const { config, weights } = openModel(folder);
    expect(config).toEqual(describeModel(folder));
    expect([...weights.keys()].some(isAdapters)).toBe(false);
    const merged = policyOf({ config, weights, format: format(config.vocab_size) });
    const [[wanted], [found]] = [
      await policy.statistics([group], 'current'),
      await merged.statistics([group], 'current'),
    ];
    wanted.forEach(({ logProbs }, i) => expect(worst(found[i].logProbs, logProbs)).toBeLessThan(1e-5));
    expect(digestOfWeights(folder)).not.toBe(digestOfWeights(join(models, 'llama3')));
    await Promise.all([policy.dispose(), merged.dispose()]);
  });

  it('rejects other frozen weights than those that it was trained on', async () => {
    const base = mkdtempSync(join(root, 'base-'));
    cpSync(join(models, 'llama3'), base, { recursive: true });
    const folder = mkdtempSync(join(root, 'checkpoint-'));
    const model = fresh();
    const policy = policyOf({ ...model, adapter: { lora, base, baseDigest: digestOfWeights(base) } });
    await policy.learn([lesson], { policy: 'reinforce', kl: null });
    await policy.step(0.05);
    await save(policy, folder);
    await policy.dispose();
    const bytes = readFileSync(join(base, 'model.safetensors'));
    bytes[bytes.length - 1] ^= 1;
    writeFileSync(join(base, 'model.safetensors'), bytes);
    expect(() => openModel(folder)).toThrow(/trained on other weights than its base has now/);
    const other = policyOf({ ...model, adapter: { lora, base, baseDigest: digestOfWeights(base) } });
    await expect(other.restore(folder, 1)).rejects.toThrow(/trained on other weights/);
    await other.dispose();
  });
});

describe('targets', () => {
  const linear = ['model.layers.0.self_attn.q_proj', 'model.layers.0.mlp.up_proj', 'lm_head'].map(
    (name) => `${name}.weight`,
  );
  const layersOf = (targets: LoraSettings['targets']): string[] => [
    ...adapterOf({ ...lora, targets }, linear, 'lm_head').layers,
  ];

  it('are whole names, their ends, a regular expression of whole names, or all but the head', () => {
    expect(layersOf('all-linear')).toEqual(['model.layers.0.self_attn.q_proj', 'model.layers.0.mlp.up_proj']);
    expect(layersOf(['mlp.up_proj', 'lm_head'])).toEqual(['model.layers.0.mlp.up_proj', 'lm_head']);
    expect(layersOf('.*q_proj')).toEqual(['model.layers.0.self_attn.q_proj']);
  });

  it.each<[string, LoraSettings['targets'], RegExp]>([
    ['a name that is no layer', ['q_proj', 'query'], /'query' matches no linear layer/],
    ['an end without its dot', ['proj'], /'proj' matches no linear layer/],
    ['an expression that matches a part', 'q_proj', /'q_proj' matches no linear layer/],
    ['no expression', '(', /'\(' is not a regular expression/],
  ])('%s is rejected', (_, targets, message) => {
    expect(() => layersOf(targets)).toThrow(message);
  });
});
