/** Stable Diffusion 3 as a policy: its steps are sampled, measured and learnt from as those of the other families. */
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { RandomStream } from '../../../../src/core/random.js';
import type { CheckpointFiles } from '../../../../src/models/files.js';
import { POSITION_TABLE } from '../../../../src/compute/nets/flow/config.js';
import type { FlowRequest } from '../../../../src/train/policies/flow/batch.js';
import {
  checkFlowModel,
  loadFlow,
  openFlowModel,
  type FlowTraining,
} from '../../../../src/train/policies/flow/load.js';
import { FlowPolicy } from '../../../../src/train/policies/flow/policy.js';
import { optimizer as optimizerSchema } from '../../../../src/config/schema/training.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { how } from './small_flow.js';

const base = join(import.meta.dirname, '../../../compute/nets/flow/fixtures/sd3_medium');
const newFolder = testFolders('sd3-policy');
const opened: FlowPolicy[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.dispose()));
});

const whole: FlowTraining = { trains: 'all', lora: null, imagePrompt: null, seed: 3 };
const ofLora: FlowTraining = {
  ...whole,
  trains: 'lora',
  lora: { rank: 2, alpha: 4, rslora: false, targets: ['to_q', 'attn2.to_v', 'ff.net.2'] },
};

function policyOf(training: FlowTraining, folder = base): FlowPolicy {
  const policy = new FlowPolicy({
    model: loadFlow(folder, training),
    optimizer: optimizerSchema.parse({ learning_rate: 1e-2, per_device_batch_size: 2 }),
    guidance: 3,
    session: { threads: 1 },
    keepReference: false,
  });
  opened.push(policy);
  return policy;
}

const numbers = (purpose: string, length: number): Float32Array => {
  const stream = new RandomStream('sd3', purpose);
  return Float32Array.from({ length }, () => stream.normal());
};
const prompt: FlowRequest = {
  flow: {
    rows: 2,
    columns: 3,
    text: numbers('text', 4 * 10),
    pooled: numbers('pooled', 7),
    without: { text: numbers('blank', 4 * 10), pooled: numbers('blank summary', 7) },
    imageFeatures: null,
    context: new Float32Array(0),
  },
};

async function answersOf(policy: FlowPolicy, asked = prompt) {
  const prompts = [asked];
  const sampling = { ...how, guidance: 3 };
  const random = (_: number, g: number): RandomStream => new RandomStream('sd3 answers', g);
  const [answers] = await policy.sample({
    prompts,
    among: prompts,
    answersPerPrompt: 2,
    how: sampling,
    weights: 'current',
    random,
  });
  return answers;
}

async function train(policy: FlowPolicy): Promise<void> {
  const answers = await answersOf(policy);
  const measured = await policy.statistics([{ prompt, answers }], 'current');
  // What is measured by the training graph is what was sampled.
  measured[0].forEach(({ logProbs }, g) =>
    logProbs.forEach((one, i) => expect(one).toBeCloseTo(answers[g].logProbs[i], 4)),
  );
  const targets = answers.map(({ logProbs }, g) => ({
    weights: logProbs.map(() => 0.1),
    advantages: g === 0 ? 1 : -1,
    reference: null,
    old: null,
  }));
  await policy.learn([{ prompt, answers, targets }], { policy: 'reinforce', kl: null });
  await policy.step(1e-2);
}

const write = (files: CheckpointFiles): string => writeCheckpoint(newFolder(), files);

const latentsOf = async (policy: FlowPolicy): Promise<number[]> =>
  (await answersOf(policy)).flatMap(({ latents }) => [...latents]);

it.each([
  ['all weights', whole, 0],
  ['LoRA', ofLora, 1e-3],
])('learns by %s, and its checkpoint is a model', async (_name, training, tolerance) => {
  const policy = policyOf(training);
  const before = await latentsOf(policy);
  await train(policy);
  const after = await latentsOf(policy);
  expect(Math.max(...after.map((x, i) => Math.abs(x - before[i])))).toBeGreaterThan(1e-3);
  const folder = write(await policy.files());
  checkFlowModel(folder, whole);
  const again = await latentsOf(policyOf(whole, folder));
  again.forEach((x, i) => expect(Math.abs(x - after[i])).toBeLessThanOrEqual(tolerance));
  // The table of positions is kept as it was.
  const [found, stored] = [folder, base].map((one) => must(openFlowModel(one).weights.get(POSITION_TABLE), 'a table'));
  expect(found).toEqual(stored);
});

it('has no IP-Adapter', () => {
  const imagePrompt = { tokens: 2, image_embed_dim: 4, scale: 1 };
  expect(() => loadFlow(base, { ...whole, trains: 'adapter', imagePrompt })).toThrow(
    expect.objectContaining({
      code: 'checkpoint',
      message: expect.stringMatching(/^an IP-Adapter for a SD3Transformer2DModel is not supported/) as string,
    }),
  );
});
