/** A flow policy's model of the smallest size at which every part still works. */
import { afterEach } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { soloPeers, type Peers } from '../../../../src/core/group/peers.js';
import type { FlowTransformerConfig, FluxConfig, QwenImageConfig } from '../../../../src/compute/nets/flow/config.js';
import type { FlowAnswer, FlowRequest } from '../../../../src/train/policies/flow/batch.js';
import { FlowLearner, type FlowTrainGroup } from '../../../../src/train/policies/flow/learner.js';
import { initFlow, type FlowModel } from '../../../../src/train/policies/flow/load.js';
import { FlowSampler, type FlowSampling } from '../../../../src/train/policies/flow/sampler.js';
import type { LossSpec } from '../../../../src/train/policies/losses/table.js';

export const config: FluxConfig = {
  architecture: 'flux',
  in_channels: 5,
  out_channels: 3,
  num_layers: 1,
  num_single_layers: 1,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: 6,
  pooled_projection_dim: 0,
  guidance_embeds: false,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [4, 2, 2],
  ip_adapter: { tokens: 2, image_embed_dim: 4, scale: 1 },
};

/** A model none of whose weights is zero, so that everything matters. */
export function smallFlow(trains: 'all' | 'adapter' = 'all', seed = 1, of: FlowTransformerConfig = config): FlowModel {
  const model = initFlow(of, trains, seed);
  for (const [name, { data }] of model.weights) {
    const stream = new RandomStream(seed, 'small flow', name);
    for (let i = 0; i < data.length; i++) data[i] += 0.2 * stream.normal();
  }
  return model;
}

/** One that says the velocities of its tokens as Qwen-Image does. */
export const ofQwen: QwenImageConfig = {
  architecture: 'qwen_image',
  in_channels: 5,
  out_channels: 3,
  patch_size: 1,
  zero_cond_t: false,
  num_layers: 1,
  attention_head_dim: 8,
  num_attention_heads: 2,
  joint_attention_dim: 6,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [4, 2, 2],
  ip_adapter: null,
};

const TOKENS = 6;

/** One that is shown what stays as further tokens. */
export const blending: FluxConfig = { ...config, in_channels: 3 };

/** A prompt of such a model: two thirds of the elements are painted. */
export function askedBeside(index: number): FlowRequest {
  const { flow } = asked(index);
  const stream = new RandomStream('kept', index);
  const shown = Float32Array.from({ length: TOKENS * 3 }, () => stream.normal());
  const painted = shown.map((_, at) => (Math.floor(at / 3) % 3 === 0 ? 0 : 1));
  return { flow: { ...flow, context: new Float32Array(0), kept: { shown, painted } } };
}

export function asked(index: number): FlowRequest {
  const stream = new RandomStream('asked', index);
  const numbers = (length: number): Float32Array => Float32Array.from({ length }, () => stream.normal());
  return {
    flow: {
      rows: 2,
      columns: 3,
      text: numbers(2 * config.joint_attention_dim),
      pooled: null,
      imageFeatures: numbers(4),
      context: numbers(TOKENS * 2),
    },
  };
}

export const how: FlowSampling = {
  sigmas: () => [1, 0.75, 0.5, 0.25, 0],
  noiseLevel: 0.7,
  fraction: 0.99,
  window: null,
  guidance: null,
  sameLatent: false,
};

export interface Parts {
  readonly sampler: FlowSampler;
  readonly learner: FlowLearner;
}

export function parts(
  model: FlowModel,
  options: { microBatch?: number; guidance?: number | null; gradientCheckpointing?: boolean; peers?: Peers } = {},
): Parts {
  const { microBatch = 4, guidance = null, gradientCheckpointing = false, peers = soloPeers } = options;
  const session = { threads: 1 };
  const sampler = new FlowSampler({ ...model, batch: microBatch, session });
  const how = { microBatch, guidance, gradientCheckpointing, session, peers };
  return { sampler, learner: new FlowLearner(model, sampler, how) };
}

/** Parts, and what else is put into `opened`, that are disposed of after each test. */
export function openedParts(): { open: typeof parts; opened: { dispose(): Promise<void> }[] } {
  const opened: { dispose(): Promise<void> }[] = [];
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((one) => one.dispose()));
  });
  const open: typeof parts = (...args) => {
    const made = parts(...args);
    opened.push(made.learner, made.sampler);
    return made;
  };
  return { open, opened };
}

/** By how much the gradient of a loss along a random direction differs from finite differences, of these. */
export async function gradientError(
  { learner }: Parts,
  weights: FlowModel['weights'],
  lessons: readonly FlowTrainGroup[],
  loss: LossSpec,
): Promise<number> {
  await learner.learn(lessons, loss);
  const gradient = new Map([...(await learner.gradients())].map(([key, one]) => [key, one.slice()]));
  const direction = new Map(
    [...weights].map(([key, { data }]) => {
      const stream = new RandomStream('direction', key);
      return [key, data.map(() => stream.normal())];
    }),
  );
  const slope = [...gradient].reduce(
    (sum, [key, one]) => sum + one.reduce((part, d, i) => part + d * direction.get(key)![i], 0),
    0,
  );
  const start = new Map([...weights].map(([key, { data }]) => [key, data.slice()]));
  const at = async (step: number): Promise<number> => {
    for (const [key, { data }] of weights) {
      start.get(key)!.forEach((one, i) => (data[i] = one + step * direction.get(key)![i]));
    }
    const { loss: value } = await learner.learn(lessons, loss);
    await learner.gradients();
    return value;
  };
  // So small that no ratio passes the edge of its range on the way.
  const h = 1e-4;
  const difference = ((await at(h)) - (await at(-h))) / (2 * h);
  return Math.abs(slope - difference) / Math.max(Math.abs(difference), 1e-3);
}

/** Answers to the first `prompts` prompts. */
export function sampled(
  { sampler }: Parts,
  model: FlowModel,
  request: {
    prompts: number;
    answers: number;
    how?: FlowSampling;
    first?: number;
    asked?: (index: number) => FlowRequest;
  },
): Promise<FlowAnswer[][]> {
  const first = request.first ?? 0;
  return sampler.sample(
    {
      prompts: Array.from({ length: request.prompts }, (_, p) => (request.asked ?? asked)(first + p)),
      answersPerPrompt: request.answers,
      how: request.how ?? how,
      random: (p, g) => new RandomStream('sampled', first + p, g),
    },
    model.weights,
  );
}
