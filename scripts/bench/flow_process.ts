/** This program's side of the bench of an iteration: sampling, learning and an optimizer step of a flow policy, once for every line of its input. */
import { optimizer } from '../../src/config/schema/training.js';
import { RandomStream } from '../../src/core/random.js';
import type { FluxConfig } from '../../src/compute/nets/flow/config.js';
import type { FlowRequest } from '../../src/train/policies/flow/batch.js';
import { initFlow } from '../../src/train/policies/flow/load.js';
import { flowModelTypes } from '../../src/train/policies/flow/model_types.js';
import { FlowPolicy } from '../../src/train/policies/flow/policy.js';
import type { FlowSampling } from '../../src/train/policies/flow/sampler.js';
import { EDIT as size } from './flow_iteration.js';
import { answerTurns } from './turns.js';

const [threads] = process.argv.slice(2);
const config: FluxConfig = {
  architecture: 'flux',
  in_channels: 2 * size.channels,
  out_channels: size.channels,
  num_layers: size.layers,
  num_single_layers: 0,
  attention_head_dim: size.depth,
  num_attention_heads: size.heads,
  joint_attention_dim: size.textWidth,
  pooled_projection_dim: size.pooled,
  guidance_embeds: false,
  prediction: 'velocity',
  condition_dropout: null,
  axes_dims_rope: [8, 8, 8],
  ip_adapter: null,
};
const policy = new FlowPolicy({
  model: initFlow(config, 'all', 1),
  optimizer: optimizer.parse({ learning_rate: 1e-4, per_device_batch_size: size.batch }),
  guidance: null,
  session: { threads: Number(threads) },
  keepReference: false,
});
const numbers = (count: number, name: string): Float32Array => {
  const stream = new RandomStream('bench', name);
  return Float32Array.from({ length: count }, () => stream.normal());
};
const prompts = Array.from({ length: size.prompts }, (_, p): FlowRequest => ({
  flow: {
    rows: size.rows,
    columns: size.rows,
    text: numbers(size.textTokens * size.textWidth, `text ${p}`),
    pooled: numbers(size.pooled, `pooled ${p}`),
    imageFeatures: null,
    context: numbers(size.rows ** 2 * size.channels, `source ${p}`),
  },
}));
const how: FlowSampling = {
  sigmas: () => flowModelTypes.tiny.sigmas(size.steps),
  guidance: null,
  sameLatent: true,
  noiseLevel: 0.7,
  fraction: 0.99,
  window: { size: size.noisy, range: [0, size.noisy] },
};

await answerTurns(async () => {
  const answers = await policy.sample({
    prompts,
    among: prompts,
    answersPerPrompt: size.answers,
    how,
    weights: 'current',
    random: (p, g) => new RandomStream('bench', p, g),
  });
  const weight = 1 / (size.prompts * size.answers * size.noisy);
  const groups = answers.map((group, p) => ({
    prompt: prompts[p],
    answers: group,
    targets: group.map(({ logProbs }, g) => ({
      weights: logProbs.map(() => weight),
      advantages: g % 2 === 0 ? 1 : -1,
      reference: null,
      old: { logProbs },
    })),
  }));
  await policy.learn(groups, { policy: 'ratio', clip: 1e-4, kl: null });
  await policy.step(1e-4);
});
