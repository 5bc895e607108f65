/** A flow policy that computes its blocks again in the backward pass learns what one does that keeps them. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import type { FlowRequest } from '../../../../src/train/policies/flow/batch.js';
import { loadFlow, type FlowModel } from '../../../../src/train/policies/flow/load.js';
import { asked, config, ofQwen, openedParts, sampled, smallFlow, type Parts } from './small_flow.js';

const { open: openParts } = openedParts();
const open = (model: FlowModel, gradientCheckpointing: boolean): Parts =>
  openParts(model, { microBatch: 2, gradientCheckpointing });

const deeper = { num_layers: 2 } as const;

const whole = { trains: 'all', lora: null, imagePrompt: null, seed: 1 } as const;

/** Stable Diffusion 3, of three joint blocks, and a prompt for it. */
const sd3 = join(import.meta.dirname, '../../../compute/nets/flow/fixtures/sd3_medium');
const numbers = (purpose: string, length: number): Float32Array => {
  const stream = new RandomStream('sd3', purpose);
  return Float32Array.from({ length }, () => stream.normal());
};
const askedOfSd3 = (index: number): FlowRequest => ({
  flow: {
    ...{ rows: 2, columns: 3, imageFeatures: null, context: new Float32Array(0) },
    text: numbers(`text ${index}`, 4 * 10),
    pooled: numbers(`pooled ${index}`, 7),
  },
});

/** FLUX.2, whose blocks share their modulation, and a prompt with a source for it. */
const flux2 = join(import.meta.dirname, '../../../compute/nets/flow/fixtures/flux2');
const askedOfFlux2 = (index: number): FlowRequest => ({
  flow: {
    ...{ rows: 2, columns: 3, pooled: null, imageFeatures: null, context: new Float32Array(0) },
    text: numbers(`text ${index}`, 4 * 10),
    kept: { shown: numbers(`source ${index}`, 6 * 6), painted: new Float32Array(6 * 6).fill(1) },
  },
});

/** The loss and the gradients of answers that the model without checkpoints gave. */
async function learnt(model: FlowModel, prompt: (index: number) => FlowRequest, gradientCheckpointing: boolean) {
  const answers = await sampled(open(model, false), model, { prompts: 2, answers: 2, asked: prompt });
  const { learner } = open(model, gradientCheckpointing);
  const lessons = answers.map((group, p) => ({
    prompt: prompt(p),
    answers: group,
    targets: group.map(({ logProbs }, g) => ({
      weights: logProbs.map(() => 0.1),
      advantages: g - 0.4,
      reference: null,
      old: null,
    })),
  }));
  const { loss } = await learner.learn(lessons, { policy: 'reinforce', kl: null });
  return { loss, gradients: new Map([...(await learner.gradients())].map(([name, one]) => [name, one.slice()])) };
}

it.each([
  {
    name: 'FLUX with an IP-Adapter',
    model: () => smallFlow('all', 1, { ...config, ...deeper, num_single_layers: 2 }),
    prompt: asked,
  },
  {
    name: 'the IP-Adapter alone',
    model: () => smallFlow('adapter', 1, { ...config, ...deeper, num_single_layers: 2 }),
    prompt: asked,
  },
  {
    name: 'without single blocks',
    model: () => smallFlow('all', 1, { ...config, ...deeper, num_single_layers: 0 }),
    prompt: asked,
  },
  { name: 'Qwen-Image', model: () => smallFlow('all', 1, { ...ofQwen, ...deeper }), prompt: asked },
  { name: 'Stable Diffusion 3', model: () => loadFlow(sd3, whole), prompt: askedOfSd3 },
  { name: 'FLUX.2', model: () => loadFlow(flux2, whole), prompt: askedOfFlux2 },
])('learns the same: $name', async ({ model, prompt }) => {
  const kept = await learnt(model(), prompt, false);
  const again = await learnt(model(), prompt, true);
  expect(again.loss).toBe(kept.loss);
  expect([...again.gradients.keys()]).toEqual([...kept.gradients.keys()]);
  const largest = Math.max(...[...kept.gradients.values()].flatMap((one) => [...one].map(Math.abs)));
  expect(largest).toBeGreaterThan(1e-3);
  for (const [name, gradient] of again.gradients) {
    const wanted = kept.gradients.get(name)!;
    gradient.forEach((one, i) => expect(Math.abs(one - wanted[i]) / largest, name).toBeLessThan(1e-6));
  }
});
