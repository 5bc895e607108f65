/** Flow models whose frozen weights are held in float16. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { floatsToHalves, HalfTensor, halvesToFloats } from '../../../../src/core/half.js';
import { RandomStream } from '../../../../src/core/random.js';
import { safetensorsPieces } from '../../../../src/core/safetensors.js';
import type { CheckpointFiles, Weights } from '../../../../src/models/files.js';
import { flowConfigJson } from '../../../../src/compute/nets/flow/config.js';
import {
  loadFlow,
  openFlowModel,
  type FlowTraining,
  trainedPart,
  type FlowModel,
} from '../../../../src/train/policies/flow/load.js';
import { FlowPolicy } from '../../../../src/train/policies/flow/policy.js';
import { optimizer as optimizerSchema } from '../../../../src/config/schema/training.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { asked, config, how, smallFlow } from './small_flow.js';

const newFolder = testFolders('flow-halves');
const opened: FlowPolicy[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((one) => one.dispose()));
});

const lora = { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' } as const;
const ofAdapter: FlowTraining = { trains: 'adapter', lora: null, imagePrompt: null, seed: 3 };
const ofLora: FlowTraining = { ...ofAdapter, trains: 'lora', lora };

const rounded = (data: Float32Array): Float32Array => halvesToFloats(floatsToHalves(data));

const write = (files: CheckpointFiles): string => writeCheckpoint(newFolder(), files);

/** The folder of a model whose numbers all have a float16, except those that `change` sets. */
function base(change: (weights: Weights) => void = () => undefined): string {
  const weights: Weights = new Map(
    [...smallFlow().weights].map(([name, { shape, data }]) => [name, { shape, data: rounded(data) }]),
  );
  change(weights);
  return write({ 'config.json': flowConfigJson(config), 'policy.safetensors': safetensorsPieces(weights) });
}

function policyOf(model: FlowModel, gradient_checkpointing = false): FlowPolicy {
  const policy = new FlowPolicy({
    model,
    optimizer: optimizerSchema.parse({ learning_rate: 1e-2, per_device_batch_size: 4, gradient_checkpointing }),
    guidance: 2,
    session: { threads: 1 },
    keepReference: true,
  });
  opened.push(policy);
  return policy;
}

/** What a policy samples, tells and has learnt after a step. */
async function did(policy: FlowPolicy) {
  const sampled = await policy.sample({
    prompts: [asked(0), asked(1)],
    among: [],
    answersPerPrompt: 2,
    how: { ...how, guidance: 2 },
    weights: 'current',
    random: (p, g) => new RandomStream('halves', p, g),
  });
  const groups = sampled.map((answers, p) => ({ prompt: asked(p), answers }));
  const lessons = groups.map((group) => ({
    ...group,
    targets: group.answers.map(({ logProbs }, g) => ({
      weights: logProbs.map(() => 0.1),
      advantages: g === 0 ? 1 : -1,
      reference: null,
      old: null,
    })),
  }));
  const { loss } = await policy.learn(lessons, { policy: 'reinforce', kl: null });
  const { gradNorm } = await policy.step(1e-2);
  return {
    sampled: sampled.flat().map(({ latents, logProbs }) => ({ latents, logProbs })),
    loss,
    gradNorm,
    trained: [...trainedPart(policy.model)].map(([name, { data }]) => [name, data.slice()]),
    checksum: await policy.checksum(),
    current: await policy.statistics(groups, 'current'),
    reference: await policy.statistics(groups, 'reference'),
  };
}

describe.each([ofAdapter, ofLora])('a flow model held in float16 that trains $trains', (training) => {
  it.each([
    { name: 'with what is kept', checkpointing: false },
    { name: 'with blocks that are computed again', checkpointing: true },
  ])(
    'samples, tells log-probabilities and learns to the bit as over float32 of these values, $name',
    async ({ checkpointing }) => {
      const folder = base();
      const policies = (['float16', 'float32'] as const).map((held) =>
        policyOf(loadFlow(folder, training, held), checkpointing),
      );
      const widened = vi.spyOn(HalfTensor.prototype, 'data', 'get');
      const [half, wide] = [await did(policies[0]), await did(policies[1])];
      // In float32 as a whole they would be in this process's memory.
      expect(widened).not.toHaveBeenCalled();
      widened.mockRestore();
      expect(half.gradNorm).toBeGreaterThan(0);
      expect(half).toEqual(wide);
    },
  );

  it('continues from its checkpoint, held in either way', async () => {
    const folder = base();
    const policy = policyOf(loadFlow(folder, training, 'float16'));
    await did(policy);
    const checkpoint = write(await policy.files());
    for (const held of ['float16', 'float32'] as const) {
      const again = policyOf(loadFlow(folder, training, held));
      await again.restore(checkpoint, 1);
      expect(await again.checksum()).toBe(await policy.checksum());
    }
  });
});

describe('a flow model stored in float16', () => {
  it('is rejected by the name of what it does not hold, and only where that stays frozen', () => {
    const large = (name: string) =>
      base((weights) => {
        must(weights.get(name), name).data[3] = 70_000;
      });
    const frozen = 'transformer_blocks.0.attn.to_q.weight';
    const load = (folder: string, training: FlowTraining) => () => loadFlow(folder, training, 'float16');
    const folder = large(frozen);
    expect(load(folder, ofAdapter)).toThrow(
      expect.objectContaining({
        message: expect.stringContaining(`tensor ${frozen} contains 70000, beyond 65504`) as string,
        next: "Set policy.engine.dtype to 'float32'.",
      }),
    );
    expect(() => loadFlow(folder, ofAdapter)).not.toThrow();
    const own = [...trainedPart({ ...smallFlow(), trains: 'adapter' })].find(([, { shape }]) => shape.length > 1)![0];
    expect(load(large(own), ofAdapter)).not.toThrow();
    expect(load(large(own), ofLora)).toThrow(`tensor ${own} contains 70000`);
  });

  it('stands on an adapter of an adapter, which is added in float32 and rounded once', async () => {
    const first = policyOf(loadFlow(base(), ofAdapter));
    await did(first);
    const warm = write(await first.files());
    const second = policyOf(loadFlow(warm, ofLora));
    await did(second);
    const folder = write(await second.files());
    const wide = openFlowModel(folder).weights;
    for (const training of [ofAdapter, ofLora]) {
      const { weights } = loadFlow(folder, training, 'float16');
      const trained = trainedPart({ weights, trains: training.trains });
      for (const [name, { shape, data }] of wide) {
        const isHalf = shape.length > 1 && !trained.has(name);
        expect(weights.get(name) instanceof HalfTensor, name).toBe(isHalf);
        expect(weights.get(name)?.data, name).toEqual(isHalf ? rounded(data) : data);
      }
    }
  });
});
