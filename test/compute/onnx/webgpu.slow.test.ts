/** Policies and frozen models on WebGPU, whose frozen weights lie on the device. `EDITRL_WEBGPU=1` says that there is one; a software Vulkan will do (VK_ICD_FILENAMES). */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as ort from 'onnxruntime-node';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import type { StorageDtype } from '../../../src/core/safetensors.js';
import type { Provider } from '../../../src/compute/onnx/session.js';
import { isAdapters } from '../../../src/compute/nets/lora.js';
import { FlowPolicy } from '../../../src/train/policies/flow/policy.js';
import { unrestricted, type TokenFormat } from '../../../src/models/tokenizer/format.js';
import { loadPolicy } from '../../../src/train/policies/tokens/load.js';
import { TokenPolicy } from '../../../src/train/policies/tokens/policy.js';
import { asked, how, smallFlow } from '../../train/policies/flow/small_flow.js';
import { group, lesson, optimizer } from '../../train/policies/small_lesson.js';
import { testFolders } from '../../support/folder.js';
import { frozenModels } from './frozen_models.js';

const REASON =
  process.env['EDITRL_WEBGPU'] === '1' ? '' : ' (skipped: EDITRL_WEBGPU=1 says that this machine has a device)';
const base = fileURLToPath(new URL('../nets/decoder/fixtures/llama3', import.meta.url));

function policyOn(provider: Provider, held: StorageDtype, contextSize = 32): TokenPolicy {
  const { vocab_size: size } = JSON.parse(readFileSync(join(base, 'config.json'), 'utf8')) as {
    readonly vocab_size: number;
  };
  const format: TokenFormat = {
    size,
    secondPart: null,
    ends: new Set([2]),
    tokenizerFiles: {},
    start: () => unrestricted,
  };
  const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' } as const;
  const session = { provider, threads: 1 };
  return new TokenPolicy({
    model: loadPolicy(base, format, { lora, seed: 7 }, null, held),
    optimizer,
    packed: 'none',
    contextSize,
    constrained: false,
    separateVocabularies: false,
    learner: { temperature: 1, microBatch: 2, gradientCheckpointing: false },
    sessions: { sampling: session, learning: session },
    keepReference: true,
  });
}

interface Work {
  readonly ids: number[][];
  readonly logProbs: number[];
}

function sample(policy: TokenPolicy, maxTokens: number): ReturnType<TokenPolicy['sample']> {
  return policy.sample({
    prompts: [group.prompt],
    among: [group.prompt],
    answersPerPrompt: 2,
    how: { temperature: 1, topP: 1, topK: -1, maxTokens, logProbTemperature: 1 },
    weights: 'current',
    random: (_, answer) => new RandomStream('webgpu', answer),
  });
}

/** What it samples, and the log-probabilities after a step. */
async function work(policy: TokenPolicy): Promise<Work> {
  const sampled = await sample(policy, 6);
  await policy.learn([lesson], { policy: 'reinforce', kl: null });
  await policy.step(0.05);
  const [statistics] = await policy.statistics([group], 'current');
  return {
    ids: sampled[0].map(({ ids }) => [...ids]),
    logProbs: statistics.flatMap(({ logProbs }) => [...logProbs]),
  };
}

/** The class of sessions, which the types do not tell. */
const sessions = ort.InferenceSession as unknown as { readonly prototype: ort.InferenceSession };

afterEach(() => vi.restoreAllMocks());

describe.skipIf(REASON !== '')(`a policy on WebGPU${REASON}`, () => {
  it.each<StorageDtype>(['float32', 'float16'])('copies frozen weights held in %s to the device once', async (held) => {
    const [cpu, gpu] = [policyOn('cpu', held), policyOn('webgpu', held)];
    const wanted = await work(cpu);
    const run = vi.spyOn(sessions.prototype, 'run');
    const found = await work(gpu).catch((error: unknown) => error as Error);
    if (found instanceof Error) {
      // Not every device has half precision.
      expect([held, found.message]).toEqual(['float16', 'this WebGPU device has no float16']);
      return;
    }
    expect(found.ids).toEqual(wanted.ids);
    found.logProbs.forEach((x, t) => expect(Math.abs(x - wanted.logProbs[t])).toBeLessThan(1e-4));
    const frozen = new Map<string, string[]>();
    for (const [feeds] of run.mock.calls) {
      for (const [input, { location }] of Object.entries(feeds as Record<string, ort.Tensor>)) {
        const name = input.replace(/@\d+$/, '');
        if (gpu.model.weights.has(name) && !isAdapters(name)) frozen.set(name, [...(frozen.get(name) ?? []), location]);
      }
    }
    expect(frozen.size).toBe([...gpu.model.weights.keys()].filter((name) => !isAdapters(name)).length);
    for (const [name, locations] of frozen) expect([name, new Set(locations)]).toEqual([name, new Set(['gpu-buffer'])]);
    const uploads = run.mock.calls.filter(([feeds]) => Object.keys(feeds as object).join() === 'x').length;
    expect(uploads).toBe(frozen.size);
    await Promise.all([cpu.dispose(), gpu.dispose()]);
  });

  it('feeds decoding steps neither weights nor caches, while these are enlarged and weights change', async () => {
    const [cpu, gpu] = [policyOn('cpu', 'float32', 100), policyOn('webgpu', 'float32', 100)];
    const answersOf = async (policy: TokenPolicy): Promise<number[][]> => {
      const before = await sample(policy, 70);
      await policy.learn([lesson], { policy: 'reinforce', kl: null });
      await policy.step(0.05);
      return [...before, ...(await sample(policy, 70))].flat().map(({ ids }) => [...ids]);
    };
    const wanted = await answersOf(cpu);
    expect(Math.max(...wanted.map(({ length }) => length))).toBe(70);
    const fed: number[] = [];
    const run = Reflect.get(sessions.prototype, 'run') as (
      ...given: unknown[]
    ) => ReturnType<ort.InferenceSession['run']>;
    // What lies where is asked at each run: a tensor that is freed later lies nowhere.
    vi.spyOn(sessions.prototype, 'run').mockImplementation(function (this: ort.InferenceSession, feeds, ...more) {
      const tensors = Object.values(feeds as Record<string, ort.Tensor>).filter(({ location }) => location === 'cpu');
      const bytes = tensors.reduce((sum, { data }) => sum + (data as Float32Array).byteLength, 0);
      if ('written' in feeds) fed.push(bytes);
      return run.call(this, feeds, ...more);
    });
    expect(await answersOf(gpu)).toEqual(wanted);
    const weights = [...gpu.model.weights.values()].reduce((bytes, { data }) => bytes + data.byteLength, 0);
    expect(fed.length).toBeGreaterThan(100);
    // The first step of a batch reads zeros from one array.
    const most = fed.sort((a, b) => a - b).at(-3);
    expect(most).toBeLessThan(weights / 100);
    await Promise.all([cpu.dispose(), gpu.dispose()]);
  });

  it('samples and trains an image model as the CPU does, whose samples each have a norm of their own', async () => {
    const [wanted, found] = [await painted('cpu'), await painted('webgpu')];
    expect(wanted.some((one) => Math.abs(one) > 0.1)).toBe(true);
    found.forEach((one, i) => expect(Math.abs(one - wanted[i])).toBeLessThan(1e-5));
  });
});

const newFolder = testFolders('webgpu');

describe.skipIf(REASON !== '')(`a model on WebGPU that nothing trains${REASON}`, () => {
  it.each(Object.keys(frozenModels))('makes what the CPU does, of weights that are copied once: %s', async (name) => {
    const wanted = await frozenModels[name]('cpu', newFolder());
    const run = vi.spyOn(sessions.prototype, 'run');
    const found = await frozenModels[name]('webgpu', newFolder()).catch((error: unknown) => error as Error);
    if (found instanceof Error) {
      expect([name.includes('float16'), found.message]).toEqual([true, 'this WebGPU device has no float16']);
      return;
    }
    expect(found.length).toBe(wanted.length);
    found.forEach((one, i) => expect(Math.abs(one - wanted[i])).toBeLessThan(1e-4));
    const calls = run.mock.calls.map(([feeds]) => feeds as Record<string, ort.Tensor>);
    const uploads = calls.filter((feeds) => Object.keys(feeds).join() === 'x').map(({ x }) => x.data);
    expect(uploads.length).toBeGreaterThan(0);
    expect(new Set(uploads).size).toBe(uploads.length);
    // Parameters are called by their layers, `block.weight`, and what is asked is not.
    const fed = calls.flatMap((feeds) => Object.entries(feeds)).filter(([input]) => input.includes('.'));
    expect(new Set(fed.map(([, { location }]) => location))).toEqual(new Set(['gpu-buffer']));
  });
});

/** The loss, the gradient's norm, and the log-probabilities after a step, of an IP-Adapter whose blocks are computed again. */
async function painted(provider: Provider): Promise<number[]> {
  const policy = new FlowPolicy({
    model: smallFlow('adapter'),
    optimizer: { ...optimizer, gradient_checkpointing: true },
    guidance: null,
    session: { provider, threads: 1 },
    keepReference: true,
  });
  const prompt = asked(0);
  const [answers] = await policy.sample({
    ...{ prompts: [prompt], among: [], answersPerPrompt: 2, how, weights: 'current' },
    random: (_, answer) => new RandomStream('webgpu', answer),
  });
  const targets = answers.map(({ logProbs }, g) => ({
    ...{ weights: logProbs.map(() => 0.1), advantages: g === 0 ? 1 : -1, reference: null, old: null },
  }));
  const lessons = [{ prompt, answers, targets }];
  const { loss } = await policy.learn(lessons, { policy: 'reinforce', kl: null });
  const { gradNorm } = await policy.step(0.05);
  const [told] = await policy.statistics(lessons, 'current');
  await policy.dispose();
  return [loss, gradNorm ?? NaN, ...told.flatMap(({ logProbs }) => [...logProbs])];
}
