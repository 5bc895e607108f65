/** Computes the gradient of one micro-batch of noisy pictures three times, and prints the peak of this process's resident memory in bytes. */
import { RandomStream } from '../../src/core/random.js';
import { soloPeers } from '../../src/group/peers.js';
import type { FluxConfig } from '../../src/nets/flow/config.js';
import type { FlowAction } from '../../src/policies/flow/batch.js';
import { FlowLearner, type FlowLesson } from '../../src/policies/flow/learner.js';
import { initFlow } from '../../src/policies/flow/model.js';
import { FlowSampler } from '../../src/policies/flow/sampler.js';
import { flowShape, type MeasuredFlow } from './memory.js';

const { pictures, side, textTokens, gradientCheckpointing } = JSON.parse(process.argv[2]) as MeasuredFlow;
const depth = flowShape.width / flowShape.heads;
const config: FluxConfig = {
  ...{ architecture: 'flux', in_channels: 16, out_channels: 16, prediction: 'velocity', condition_dropout: 0 },
  ...{ num_layers: flowShape.layers, num_single_layers: flowShape.singleLayers },
  ...{
    attention_head_dim: depth,
    num_attention_heads: flowShape.heads,
    axes_dims_rope: [depth / 4, depth / 4, depth / 2],
  },
  ...{ joint_attention_dim: 64, pooled_projection_dim: 0, guidance_embeds: false, ip_adapter: null },
};
const model = initFlow(config, 'all', 1);
const session = { threads: 1 };
const sampler = new FlowSampler({ ...model, batch: pictures, session });
const learner = new FlowLearner(model, sampler, {
  ...{ microBatch: pictures, guidance: null, gradientCheckpointing, session },
  peers: soloPeers,
});
const random = new RandomStream('bench');
const numbers = (length: number): Float32Array => Float32Array.from({ length }, () => random.normal());
const size = side ** 2 * config.in_channels;
const action = (): FlowAction => ({
  ...{ sigma: 0.5, x: numbers(size), drawn: numbers(size) },
  gaussian: { ofX: 1, ofVelocity: -0.1, precision: 1, offset: 0 },
});
const answers = Array.from({ length: pictures }, () => ({
  ...{ actions: [action()], latents: numbers(size), logProbs: Float32Array.of(0), finished: true },
}));
const lesson: FlowLesson = {
  prompt: {
    flow: {
      ...{ rows: side, columns: side, text: numbers(textTokens * config.joint_attention_dim) },
      ...{ pooled: null, imageFeatures: null, context: new Float32Array(0) },
    },
  },
  answers,
  targets: answers.map(() => ({
    ...{ weights: Float32Array.of(1 / pictures), advantages: 1, reference: null, old: null },
  })),
};
for (let round = 0; round < 3; round++) {
  await learner.learn([lesson], { policy: 'reinforce', kl: null });
  await learner.gradients();
}
// The unit differs between Linux and macOS, but `resourceUsage` gives kilobytes on both.
console.log(process.resourceUsage().maxRSS * 1024);
