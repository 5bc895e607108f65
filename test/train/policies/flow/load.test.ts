/** Flow models over a base: what trains is saved alone, and comes back with the base that it names. */
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { RandomStream } from '../../../../src/core/random.js';
import { readSafetensors, readSafetensorsIndex, safetensorsPieces } from '../../../../src/core/safetensors.js';
import { Session } from '../../../../src/compute/onnx/session.js';
import { mul, sumAll } from '../../../../src/compute/graph/build.js';
import { gradients } from '../../../../src/compute/graph/differentiate.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import type { CheckpointFiles } from '../../../../src/models/files.js';
import { flowConfigJson } from '../../../../src/compute/nets/flow/config.js';
import { flowInputs, isIpAdapter, velocity } from '../../../../src/compute/nets/flow/transformer.js';
import { isAdapters } from '../../../../src/compute/nets/lora.js';
import { ADAPTER_CONFIG_FILE, ADAPTER_FILE } from '../../../../src/models/adapters/files.js';
import {
  checkFlowModel,
  describeFlowModel,
  loadFlow,
  openFlowModel,
  requireUnconditional,
  type FlowTraining,
  type FlowModel,
} from '../../../../src/train/policies/flow/load.js';
import { FlowPolicy } from '../../../../src/train/policies/flow/policy.js';
import { optimizer as optimizerSchema } from '../../../../src/config/schema/training.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { asked, config, how, smallFlow } from './small_flow.js';

const newFolder = testFolders('flow-load');
const opened: FlowPolicy[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.dispose()));
});

const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' } as const;
const whole: FlowTraining = { trains: 'all', lora: null, imagePrompt: null, seed: 3 };
const ofAdapter: FlowTraining = { ...whole, trains: 'adapter' };
const ofLora: FlowTraining = { ...whole, trains: 'lora', lora };

const write = (files: CheckpointFiles): string => writeCheckpoint(newFolder(), files);

/** A model's folder with all weights. */
function wholeFolder(): string {
  const { weights } = smallFlow();
  return write({ 'config.json': flowConfigJson(config), 'policy.safetensors': safetensorsPieces(weights) });
}

function policyOf(model: FlowModel, emaDecay: number | null = null): FlowPolicy {
  const settings = { learning_rate: 1e-2, per_device_batch_size: 4, ema_decay: emaDecay };
  const policy = new FlowPolicy({
    model,
    optimizer: optimizerSchema.parse(settings),
    guidance: null,
    session: { threads: 1 },
    keepReference: true,
  });
  opened.push(policy);
  return policy;
}

const request = (weights: 'current' | 'average') => ({
  prompts: [asked(0), asked(1)],
  among: [asked(0), asked(1)],
  answersPerPrompt: 2,
  how,
  weights,
  random: (p: number, g: number) => new RandomStream('load', p, g),
});

/** One step on its own answers. */
async function train(policy: FlowPolicy): Promise<void> {
  const answers = await policy.sample(request('current'));
  const lessons = answers.map((group, p) => ({
    prompt: asked(p),
    answers: group,
    targets: group.map(({ logProbs }, g) => ({
      weights: logProbs.map(() => 0.1),
      advantages: g === 0 ? 1 : -1,
      reference: null,
      old: null,
    })),
  }));
  await policy.learn(lessons, { policy: 'reinforce', kl: null });
  await policy.step(1e-2);
}

async function latentsOf(policy: FlowPolicy, weights: 'current' | 'average' = 'current'): Promise<number[]> {
  const answers = await policy.sample(request(weights));
  return answers.flat().flatMap(({ latents }) => [...latents]);
}

function worst(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  expect(found.length).toBe(expected.length);
  let [difference, largest] = [0, 0.1];
  for (let i = 0; i < expected.length; i++) {
    difference = Math.max(difference, Math.abs(found[i] - expected[i]));
    largest = Math.max(largest, Math.abs(expected[i]));
  }
  return difference / largest;
}

describe.each([
  ['the IP-Adapter', ofAdapter, isIpAdapter, 0],
  ['LoRA', ofLora, isAdapters, 1e-4],
] as const)('a model that trains %s', (_name, training, isTrained, tolerance) => {
  it('is its base at first, and its checkpoint holds what is trained alone', async () => {
    const base = wholeFolder();
    const model = loadFlow(base, training);
    const policy = policyOf(model);
    const before = await latentsOf(policy);
    expect(before).toEqual(await latentsOf(policyOf(loadFlow(base, whole))));
    await train(policy);
    const after = await latentsOf(policy);
    expect(worst(after, before)).toBeGreaterThan(1e-3);

    const folder = write(await policy.files());
    expect(readdirSync(folder).sort()).toEqual([ADAPTER_CONFIG_FILE, ADAPTER_FILE, 'optimizer.safetensors']);
    const held = [...readSafetensorsIndex(join(folder, ADAPTER_FILE)).entries.keys()];
    expect(held.length).toBeGreaterThan(0);
    for (const name of held) expect(isTrained(name), name).toBe(true);

    // As a model for others, and for a run that goes on.
    expect(describeFlowModel(folder)).toEqual(config);
    checkFlowModel(folder, whole);
    expect(worst(await latentsOf(policyOf(loadFlow(folder, whole))), after)).toBeLessThanOrEqual(tolerance);
    const resumed = policyOf(loadFlow(base, training));
    await resumed.restore(folder, 1);
    expect(await latentsOf(resumed)).toEqual(after);
    await Promise.all([train(policy), train(resumed)]);
    expect(await resumed.checksum()).toBe(await policy.checksum());
  });

  it('rejects another base than it was trained on', async () => {
    const base = wholeFolder();
    const policy = policyOf(loadFlow(base, training));
    const folder = write(await policy.files());
    const other = smallFlow('all', 2).weights;
    writeFileSync(join(base, 'policy.safetensors'), Buffer.concat(safetensorsPieces(other)));
    const words = 'the adapter was trained on other weights than its base has now';
    expect(() => openFlowModel(folder)).toThrow(words);
    await expect(policyOf(loadFlow(base, training)).restore(folder, 0)).rejects.toThrow(words);
  });
});

describe('adapters of flow models', () => {
  it('stand on each other: LoRA on an IP-Adapter, and an IP-Adapter on the base of the one that it continues from', async () => {
    const base = wholeFolder();
    const warmed = policyOf(loadFlow(base, ofAdapter));
    await train(warmed);
    const warmUp = write(await warmed.files());
    const latents = await latentsOf(warmed);

    const next = loadFlow(warmUp, ofAdapter);
    expect(next.over).toMatchObject({ kind: 'image_prompt', base });
    expect(await latentsOf(policyOf(next))).toEqual(latents);

    const beside = policyOf(loadFlow(warmUp, ofLora));
    expect(beside.model.over).toMatchObject({ kind: 'lora', base: warmUp });
    expect(await latentsOf(beside)).toEqual(latents);
    await train(beside);
    const last = openFlowModel(write(await beside.files()));
    expect(
      worst(await latentsOf(policyOf({ ...last, trains: 'all', over: null })), await latentsOf(beside)),
    ).toBeLessThan(1e-4);
  });
});

describe('guidance', () => {
  it('needs a model that was trained on images without words, has a guidance input, or was made elsewhere', () => {
    const look = (share: number | null, guidance: number | null) => () =>
      requireUnconditional({ ...config, condition_dropout: share }, guidance);
    expect(look(0, 3)).toThrow('the model has no unconditional branch');
    expect(() => requireUnconditional({ ...config, condition_dropout: 0 }, 3, 'environment')).toThrow(
      expect.objectContaining({
        message: expect.stringMatching(/^environment.guidance_scale is set/) as string,
        where: 'environment.model',
      }),
    );
    expect(look(0, null)).not.toThrow();
    expect(look(0.1, 3)).not.toThrow();
    expect(look(null, 3)).not.toThrow();
    expect(() => requireUnconditional({ ...config, guidance_embeds: true, condition_dropout: 0 }, 3)).not.toThrow();
    const folder = write({ 'config.json': flowConfigJson({ ...config, condition_dropout: 0.1 }) });
    expect(describeFlowModel(folder).condition_dropout).toBe(0.1);
  });

  it.each([ofAdapter, ofLora])('is kept from what an adapter has learnt: $trains', async (training) => {
    const { weights } = smallFlow();
    const base = write({
      'config.json': flowConfigJson({ ...config, condition_dropout: 0 }),
      'policy.safetensors': safetensorsPieces(weights),
    });
    const begun = loadFlow(base, training);
    expect(() => checkFlowModel(base, training, 3)).toThrow('the model has no unconditional branch');
    const learnt = policyOf({ ...begun, config: { ...begun.config, condition_dropout: 0.25 } });
    const folder = write(await learnt.files());
    expect(describeFlowModel(folder).condition_dropout).toBe(0.25);
    expect(openFlowModel(folder).config.condition_dropout).toBe(0.25);
    checkFlowModel(folder, whole, 3);
  });
});

describe('moving averages', () => {
  it.each([whole, ofAdapter, ofLora])('of what $trains trains answer where they are asked', async (training) => {
    const policy = policyOf(loadFlow(wholeFolder(), training), 0.5);
    expect(policy.capabilities.average).toBe(true);
    const start = await latentsOf(policy);
    await train(policy);
    const [current, average] = [await latentsOf(policy), await latentsOf(policy, 'average')];
    expect(worst(average, start)).toBeGreaterThan(1e-4);
    expect(worst(average, current)).toBeGreaterThan(1e-4);
    const resumed = policyOf(loadFlow(wholeFolder(), training), 0.5);
    await resumed.restore(write(await policy.files()), 1);
    expect(await latentsOf(resumed, 'average')).toEqual(average);
  });
});

describe('LoRA that peft saved', () => {
  it('has the velocity of diffusers to 1e-5, and its gradients to 1e-4 of the largest', async () => {
    const fixture = fileURLToPath(new URL('./fixtures/flux_lora', import.meta.url));
    const base = fileURLToPath(new URL('../../../compute/nets/flow/fixtures/flux', import.meta.url));
    const folder = newFolder();
    cpSync(fixture, folder, { recursive: true });
    const description = JSON.parse(readFileSync(join(folder, ADAPTER_CONFIG_FILE), 'utf8')) as object;
    writeFileSync(join(folder, ADAPTER_CONFIG_FILE), JSON.stringify({ ...description, base_model_name_or_path: base }));
    const given = must(openFlowModel(folder), 'the model');
    const read = (file: string) => readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
    const [inputs, expected] = [base, fixture].map((at) => read(join(at, 'expected.safetensors')));

    const training = {
      ...ofLora,
      lora: { rank: 3, alpha: 5, rslora: false, targets: (description as { target_modules: string[] }).target_modules },
    };
    const model = loadFlow(base, training);
    for (const [name, { data }] of read(join(folder, ADAPTER_FILE))) {
      must(model.weights.get(name.replace('base_model.model.', '')), name).data.set(data);
    }
    const shape = { batch: 2, rows: 3, columns: 4, textTokens: 5 };
    for (const { config: own, weights, adapter } of [{ ...given, adapter: undefined }, model]) {
      const graph = new Graph('lora');
      const out = velocity(graph, own, shape, flowInputs(graph, own, shape), adapter);
      const loss = sumAll(mul(out, graph.constant(must(inputs.get('projection'), 'projection').data, out.shape)));
      const names = [...graph.parameters.keys()].filter(isAdapters);
      const slopes = gradients(
        loss,
        names.map((name) => must(graph.parameters.get(name), name)),
      );
      const session = await Session.compile(graph, {
        out,
        ...Object.fromEntries(names.map((name, i) => [name, slopes[i]])),
      });
      const feeds = Object.fromEntries(graph.inputs.map(({ name }) => [name, must(inputs.get(name), name).data]));
      const found = await session.run(feeds, weights);
      await session.dispose();
      expect(worst(found['out'] as Float32Array, must(expected.get('output'), 'output').data)).toBeLessThan(1e-5);
      for (const name of names) {
        const wanted = must(expected.get(`gradient:${name}`), name).data;
        expect(worst(found[name] as Float32Array, wanted), name).toBeLessThan(1e-4);
      }
      if (adapter !== undefined) expect(names.length).toBe([...expected.keys()].length - 1);
    }
  });
});
