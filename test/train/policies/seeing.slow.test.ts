import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import type { RgbImage } from '../../../src/core/images/png.js';
import { Session } from '../../../src/compute/onnx/session.js';
import { withImages } from '../../../src/models/images/vision_input.js';
import { openImageProcessor, plainProcessor, processorFilesOf } from '../../../src/models/images/processor.js';
import { readArchitecture } from '../../../src/compute/nets/decoder/architectures.js';
import { initDecoder } from '../../../src/compute/nets/decoder/config.js';
import { partOf, type TrainedParts } from '../../../src/compute/nets/vision/config.js';
import type { TokenAnswer, TokenRequest } from '../../../src/train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../src/models/tokenizer/format.js';
import { FreeText } from '../../../src/models/tokenizer/format.js';
import { initVisionPolicy, loadPolicy } from '../../../src/train/policies/tokens/load.js';
import type { PolicyModel } from '../../../src/models/adapters/policy_model.js';
import { TokenPolicy } from '../../../src/train/policies/tokens/policy.js';
import type { TokenTrainGroup } from '../../../src/train/policies/tokens/learner.js';
import { decoderInit, visionInit } from '../../../src/config/schema/model.js';
import { optimizer } from '../../../src/config/schema/training.js';
import { writeCheckpoint } from '../../support/checkpoint.js';
import { testFolders } from '../../support/folder.js';

const folder = testFolders('seeing');

/** Ids: an end, an answer for each colour, a word, and the places of images. */
const END = 0;
const WORD = 4;
const tokens = { image_token_id: 5, video_token_id: 6, vision_start_token_id: 7, vision_end_token_id: 8 };
const COLOURS = [
  [220, 30, 30],
  [30, 200, 40],
  [40, 60, 230],
] as const;
const SIDE = 16;

const init = decoderInit.parse({
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  embedding_std: 0.5,
});
const eyes = visionInit.parse({ depth: 2, hidden_size: 32, intermediate_size: 48, num_heads: 2, patch_size: 4 });
const processor = plainProcessor(eyes, { min_pixels: 64, max_pixels: 1024 });
const format = new FreeText({ size: 9, files: {} }, new Set([END]));
const everything: TrainedParts = { mm_vision: true, mm_mlp: true, mm_llm: true };

/** Qwen3-VL's config.json in the same sizes. */
const newer = JSON.stringify({
  model_type: 'qwen3_vl',
  ...tokens,
  text_config: {
    ...{ vocab_size: 9, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 2 },
    ...{ num_key_value_heads: 2, head_dim: 16, rope_parameters: { mrope_section: [4, 2, 2], mrope_interleaved: true } },
  },
  vision_config: {
    ...{ depth: 2, hidden_size: 32, intermediate_size: 48, num_heads: 2, patch_size: 4, out_hidden_size: 32 },
    ...{ num_position_embeddings: 36, deepstack_visual_indexes: [0] },
  },
});

type Family = 'qwen2_5_vl' | 'qwen3_vl';

function made(family: Family, trains = everything): PolicyModel {
  const { settings } = processor;
  if (family === 'qwen2_5_vl') {
    return initVisionPolicy(init, format, 3, { init: eyes, parts: trains, tokens, processor: settings });
  }
  const { config } = readArchitecture(JSON.parse(newer), 'config.json', 'words and images');
  const weights = initDecoder(config, { embedding_std: 0.5, initializer_range: null }, 3);
  return { config, format, weights, trains, description: newer, files: processorFilesOf(settings) };
}

function policyOf(model: PolicyModel): TokenPolicy {
  return new TokenPolicy({
    model,
    optimizer: optimizer.parse({ learning_rate: 3e-3, per_device_batch_size: 24 }),
    contextSize: 40,
    constrained: false,
    separateVocabularies: false,
    learner: { temperature: 1, microBatch: 24, gradientCheckpointing: false },
    sessions: { sampling: { threads: 1 }, learning: { threads: 1 } },
    keepReference: true,
  });
}

/** Noise with a square of a colour somewhere. */
function scene(random: RandomStream): { readonly image: RgbImage; readonly colour: number } {
  const colour = random.integer(COLOURS.length);
  const [left, top] = [random.integer(SIDE - 8), random.integer(SIDE - 8)];
  const data = new Uint8Array(SIDE * SIDE * 3);
  for (let i = 0; i < SIDE * SIDE; i++) {
    const [x, y] = [i % SIDE, Math.floor(i / SIDE)];
    const inside = x >= left && x < left + 8 && y >= top && y < top + 8;
    for (let c = 0; c < 3; c++) data[3 * i + c] = inside ? COLOURS[colour][c] : random.integer(200);
  }
  return { image: { width: SIDE, height: SIDE, data }, colour };
}

function question(random: RandomStream): { readonly prompt: TokenRequest; readonly answer: number } {
  const { image, colour } = scene(random);
  const input = processor.image(image, 'here');
  const ids = [WORD, tokens.vision_start_token_id, tokens.image_token_id, tokens.vision_end_token_id, WORD];
  const prompt: TokenPrompt = { ids: withImages(ids, [input], tokens, eyes, 'here'), images: [input] };
  return { prompt: { tokens: prompt }, answer: 1 + colour };
}

function questions(seed: number, count = 24): ReturnType<typeof question>[] {
  return Array.from({ length: count }, (_, i) => question(new RandomStream(seed, 'scene', i)));
}

const target = (weight: number, advantage: number) => (ids: Int32Array) => ({
  weights: new Float32Array(ids.length).fill(weight),
  advantages: advantage,
  reference: null,
  old: null,
});

async function teach(policy: TokenPolicy, steps: number): Promise<void> {
  for (let step = 0; step < steps; step++) {
    const lessons = questions(step).map(({ prompt, answer }): TokenTrainGroup => {
      const ids = Int32Array.of(answer, END);
      return { prompt, answers: [{ ids }], targets: [target(1 / 48, 1)(ids)] };
    });
    await policy.learn(lessons, { policy: 'likelihood' });
    await policy.step(3e-3);
  }
}

function sample(policy: TokenPolicy, asked: readonly TokenRequest[], temperature: number, perPrompt = 1, seed = 0) {
  return policy.sample({
    prompts: asked,
    among: asked,
    answersPerPrompt: perPrompt,
    how: { maxTokens: 2, temperature, topP: 1, topK: -1, logProbTemperature: 1 },
    weights: 'current',
    random: (p, g) => new RandomStream(seed, 'answer', p, g),
  });
}

const isRight = ({ ids }: TokenAnswer, answer: number): boolean => ids[0] === answer && ids[1] === END;

async function accuracy(policy: TokenPolicy): Promise<number> {
  const held = questions(900_000, 60);
  const answers = await sample(
    policy,
    held.map(({ prompt }) => prompt),
    0,
  );
  return answers.filter(([one], i) => isRight(one, held[i].answer)).length / held.length;
}

async function write(policy: TokenPolicy): Promise<string> {
  return writeCheckpoint(folder(), await policy.files());
}

/** Some layers that get an adapter with the connector. */
const connectors: Readonly<Record<Family, readonly string[]>> = {
  qwen2_5_vl: ['model.visual.merger.mlp.0'],
  qwen3_vl: ['model.visual.merger.linear_fc1', 'model.visual.deepstack_merger_list.0.linear_fc2'],
};

describe.each(['qwen2_5_vl', 'qwen3_vl'] as const)('a policy that sees: %s', (family) => {
  it('learns what images show from labels, and then from rewards', async () => {
    const policy = policyOf(made(family));
    await teach(policy, 3);
    const start = await accuracy(policy);
    for (let step = 0; step < 15; step++) {
      const asked = questions(5000 + step, 12);
      const prompts = asked.map(({ prompt }) => prompt);
      const answers = await sample(policy, prompts, 1, 4, step);
      const lessons = prompts.map((prompt, p): TokenTrainGroup => {
        const rewards = answers[p].map((one) => (isRight(one, asked[p].answer) ? 1 : 0));
        const mean = rewards.reduce<number>((sum, reward) => sum + reward, 0) / 4;
        return {
          prompt,
          answers: answers[p],
          targets: answers[p].map(({ ids }, g) => target(1 / 96, 2 * (rewards[g] - mean))(ids)),
        };
      });
      await policy.learn(lessons, { policy: 'reinforce', kl: null });
      await policy.step(2e-3);
    }
    const after = await accuracy(policy);
    await policy.dispose();
    expect(after).toBeGreaterThan(start + 0.1);
    expect(after).toBeGreaterThan(0.8);
  });

  it.each([
    { mm_vision: false, mm_mlp: true, mm_llm: true },
    { mm_vision: true, mm_mlp: false, mm_llm: false },
    { mm_vision: false, mm_mlp: false, mm_llm: true },
  ])('changes no bit of its frozen parts, and its checkpoint is a whole model: %o', async (parts) => {
    const model = made(family, parts);
    const before = new Map([...model.weights].map(([name, { data }]) => [name, data.slice()]));
    const policy = policyOf(model);
    await teach(policy, 2);
    const path = await write(policy);
    for (const [name, { data }] of model.weights) {
      const same = Buffer.from(data.buffer, data.byteOffset, data.byteLength).equals(
        Buffer.from(before.get(name)!.buffer),
      );
      // Biases of keys add the same to all scores of a query.
      if (!name.endsWith('k_proj.bias')) expect(same, name).toBe(!parts[partOf(name)]);
    }
    const again = loadPolicy(path, format, null, parts);
    expect(again.config).toEqual(model.config);
    for (const [name, { data }] of again.weights) expect(data, name).toEqual(model.weights.get(name)!.data);
    expect(openImageProcessor(path).settings).toEqual(processor.settings);
    const resumed = policyOf(made(family, parts));
    await resumed.restore(path, policy.steps);
    expect(await resumed.checksum()).toBe(await policy.checksum());
    const asked = questions(1, 4).map(({ prompt }) => prompt);
    expect(await sample(resumed, asked, 1)).toEqual(await sample(policy, asked, 1));
    await policy.dispose();
    await resumed.dispose();
  });

  it('trains adapters on the selected parts, by their names in transformers', async () => {
    const base = policyOf(made(family));
    const path = await write(base);
    await base.dispose();
    const parts = { mm_vision: false, mm_mlp: true, mm_llm: true };
    const fresh = { lora: { rank: 2, alpha: 4, rslora: false, targets: 'all-linear' }, seed: 1 };
    const model = loadPolicy(path, format, fresh, parts);
    const policy = policyOf(model);
    await teach(policy, 2);
    const adapter = await write(policy);
    const { target_modules } = JSON.parse(readFileSync(join(adapter, 'adapter_config.json'), 'utf8')) as {
      readonly target_modules: readonly string[];
    };
    expect(target_modules).toEqual(expect.arrayContaining([...connectors[family]]));
    expect(target_modules).toContain('model.language_model.layers.1.self_attn.q_proj');
    expect(target_modules.some((name) => name.includes('blocks'))).toBe(false);
    const merged = policyOf(loadPolicy(adapter, format, null, parts));
    const asked = questions(1, 4).map(({ prompt }) => prompt);
    const [a, b] = [await sample(policy, asked, 1), await sample(merged, asked, 1)];
    a.forEach(([{ ids, logProbs }], i) => {
      expect([...b[i][0].ids]).toEqual([...ids]);
      logProbs.forEach((x, t) => expect(b[i][0].logProbs[t]).toBeCloseTo(x, 4));
    });
    await policy.dispose();
    await merged.dispose();
  });

  it('encodes an image once, for all answers to it and all that is computed of them', async () => {
    const run = vi.spyOn(Session.prototype, 'run');
    const policy = policyOf(made(family, { mm_vision: false, mm_mlp: true, mm_llm: true }));
    const asked = questions(1, 3).map(({ prompt }) => prompt);
    const answers = await sample(policy, asked, 1, 4);
    const groups = asked.map((prompt, p) => ({ prompt, answers: answers[p] }));
    await policy.statistics(groups, 'reference');
    const lessons = groups.map((group) => ({ ...group, targets: group.answers.map(({ ids }) => target(1, 1)(ids)) }));
    await policy.learn(lessons, { policy: 'likelihood' });
    await policy.dispose();
    const encoded = run.mock.calls.filter(([feeds]) => 'pixels' in feeds);
    run.mockRestore();
    expect(encoded).toHaveLength(asked.length);
  });

  it.each([true, false])(
    'gives a prompt the same answers whatever else is in its chunk (encoder trains: %s)',
    async (mm_vision) => {
      const policy = policyOf(made(family, { mm_vision, mm_mlp: true, mm_llm: true }));
      const asked = questions(1, 3).map(({ prompt }) => prompt);
      const how = { maxTokens: 3, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 };
      const shared = { among: asked, answersPerPrompt: 2, how, weights: 'current' as const };
      const together = await policy.sample({
        ...shared,
        prompts: asked,
        random: (p, g) => new RandomStream(5, 'answer', p, g),
      });
      const apart = await policy.sample({
        ...shared,
        prompts: [asked[2]],
        random: (_p, g) => new RandomStream(5, 'answer', 2, g),
      });
      await policy.dispose();
      expect(apart[0]).toEqual(together[2]);
    },
  );
});
