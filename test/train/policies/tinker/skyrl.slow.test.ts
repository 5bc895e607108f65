/**
 * A real SkyRL server on a CPU: the contract of policies, and the same step taken there and by this program's own engine. Left out unless EDITRL_SKYRL
 * names a Python environment that has SkyRL (docs/guide/gpus-and-servers.md).
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/core/clock.js';
import { RandomStream } from '../../../../src/core/random.js';
import { encodeSafetensors, readSafetensors } from '../../../../src/core/safetensors.js';
import { TinkerSession } from '../../../../src/train/policies/tinker/session.js';
import { soloPeers } from '../../../../src/core/group/peers.js';
import { initDecoder, type DecoderConfig } from '../../../../src/compute/nets/decoder/config.js';
import { openDecoder } from '../../../../src/models/networks/decoder.js';
import { digestOfWeights, readAdapterConfig } from '../../../../src/models/adapters/files.js';
import type { TrainGroup } from '../../../../src/train/policies/policy.js';
import { adaptFrom } from '../../../../src/models/adapters/decoder.js';
import type { TokenAnswer, TokenRequest } from '../../../../src/train/policies/tokens/batch.js';
import { TokenPolicy } from '../../../../src/train/policies/tokens/policy.js';
import type { TokenSampling } from '../../../../src/train/policies/tokens/sampling.js';
import { probeServer, type WithDeadline } from '../../../../src/train/policies/tinker/probe.js';
import type { TinkerPolicy } from '../../../../src/train/policies/tinker/policy.js';
import { optimizer } from '../../../../src/config/schema/training.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { skyrlEnvironment, SkyrlServer } from '../../../support/skyrl.js';
import { policyContract } from '../contract.js';
import { connect, format, how, prompts, servedPolicy, VOCABULARY, within } from './served.js';

const REASON = skyrlEnvironment === undefined ? ' (left out: EDITRL_SKYRL names no environment)' : '';

const sizes: DecoderConfig = {
  vocab_size: VOCABULARY,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  rope_theta: 10_000,
  rms_norm_eps: 1e-6,
  attention_bias: false,
  tie_word_embeddings: false,
};

/** A Qwen3 of random weights, whose distributions are uneven enough to learn from. */
function writeQwen3(folder: string): string {
  mkdirSync(folder, { recursive: true });
  const family = { architectures: ['Qwen3ForCausalLM'], model_type: 'qwen3', hidden_act: 'silu', dtype: 'float32' };
  const json = { ...family, ...sizes, max_position_embeddings: 512 };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(json));
  const weights = initDecoder({ ...sizes, qk_norm: 'head' }, { embedding_std: 0.8, initializer_range: 0.3 }, 1);
  writeFileSync(join(folder, 'model.safetensors'), encodeSafetensors(weights, { format: 'pt' }));
  const vocab = Object.fromEntries(Array.from({ length: VOCABULARY }, (_each, id) => [`w${id}`, id]));
  const model = { type: 'WordLevel', vocab, unk_token: 'w0' };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify({ version: '1.0', added_tokens: [], model }));
  writeFileSync(join(folder, 'tokenizer_config.json'), '{"tokenizer_class": "PreTrainedTokenizerFast"}');
  return folder;
}

describe.skipIf(skyrlEnvironment === undefined)(`SkyRL on a CPU${REASON}`, () => {
  const newFolder = testFolders('skyrl');
  let base: string;
  let server: SkyrlServer;
  beforeAll(async () => {
    base = writeQwen3(join(newFolder(), 'base'));
    server = await SkyrlServer.start(base, newFolder());
  }, 240_000);
  afterAll(() => server.kill());

  const open = (more: Parameters<typeof servedPolicy>[1] = {}): TinkerPolicy =>
    servedPolicy(server, {
      baseModel: base,
      rank: 4,
      reduction: 'mean_per_datum',
      clock: systemClock,
      maxWaitMs: 200_000,
      ...more,
    });

  policyContract<TokenRequest, TokenAnswer, TokenSampling>('tokens, at SkyRL', {
    open: () => open({ downloadsAdapter: false }),
    prompts,
    how,
    learningRate: 0.05,
    tolerance: 1e-4,
    rounds: true,
    learnsOnce: true,
  });

  it('passes the probe', async () => {
    const connection = connect(server, undefined, systemClock);
    const lora = { rank: 4, seed: 1 };
    const session = new TinkerSession({
      connection,
      dialect: 'auto',
      baseModel: base,
      lora,
      tags: [],
      version: '0.25.0',
    });
    const asked: WithDeadline = (work) => work(within(200_000));
    const reduction = await probeServer({
      connection,
      session,
      concurrency: 4,
      withDeadline: asked,
      format,
      reduction: null,
      samplesAhead: false,
    });
    await connection.close();
    expect(reduction).toBe('mean_per_datum');
  });

  it("computes what this program's engine does from the same adapter: log-probabilities, and the step along the gradient", async () => {
    const notes: string[] = [];
    const there = open({ eps: 1, notes });
    const folder = newFolder();
    writeCheckpoint(folder, await there.files());
    const here = ownPolicy(folder, base);
    await there.publish('current');
    const answers = await there.sample({
      prompts,
      among: prompts,
      answersPerPrompt: 8,
      how,
      weights: 'current',
      random: (p, g) => new RandomStream('skyrl', p, g),
    });
    const lessons = trainGroupsOf(answers);
    const [served, own] = [await there.statistics(lessons, 'current'), await here.statistics(lessons, 'current')];
    const differences = served.flatMap((group, p) =>
      group.flatMap(({ logProbs }, g) => [...logProbs].map((one, t) => Math.abs(one - own[p][g].logProbs[t]))),
    );
    const farthest = Math.max(...differences);
    for (const policy of [there, here]) {
      await policy.learn(lessons, { policy: 'reinforce', kl: null });
      await policy.step(0.1);
    }
    const after = [newFolder(), newFolder()];
    writeCheckpoint(after[0], await there.files());
    writeCheckpoint(after[1], await here.files());
    const [thereBy, hereBy] = after.map((one) => changes(folder, one));
    const likeness = cosine(thereBy, hereBy);
    const length = Math.hypot(...thereBy) / Math.hypot(...hereBy);
    console.info(`log-probabilities differ by at most ${farthest}; cosine ${likeness}; lengths as ${length} to 1`);
    expect(differences.length).toBeGreaterThan(20);
    expect(farthest).toBeLessThan(1e-4);
    expect(likeness).toBeGreaterThan(0.999);
    expect(Math.abs(length - 1)).toBeLessThan(1e-3);
    expect(notes).toEqual([]);
    await Promise.all([there.dispose(), here.dispose()]);
  });
});

/** The adapter of a folder, trained by this program. */
function ownPolicy(folder: string, base: string): TokenPolicy {
  const decoder = openDecoder(base);
  const { lora } = readAdapterConfig(folder);
  return new TokenPolicy({
    model: {
      ...adaptFrom(decoder.config, decoder.weights, folder),
      format,
      adapter: { lora, base, baseDigest: digestOfWeights(base) },
    },
    optimizer: optimizer.parse({ learning_rate: 0.05, max_grad_norm: null, eps: 1 }),
    contextSize: 40,
    constrained: false,
    separateVocabularies: false,
    learner: { temperature: 1, microBatch: 16, gradientCheckpointing: false },
    packed: 'all',
    sessions: { sampling: { threads: 1 }, learning: { threads: 1 } },
    peers: soloPeers,
    keepReference: true,
  });
}

/** Rewards the share of odd tokens. */
function trainGroupsOf(answers: readonly (readonly TokenAnswer[])[]): TrainGroup<TokenRequest, TokenAnswer>[] {
  const tokens = answers.flat().reduce((sum, { ids }) => sum + ids.length, 0);
  return prompts.map((prompt, p) => ({
    prompt,
    answers: answers[p],
    targets: answers[p].map(({ ids }) => ({
      weights: new Float32Array(ids.length).fill(1 / tokens),
      advantages: ids.filter((id) => id % 2 === 1).length / ids.length - 0.5,
      reference: null,
      old: null,
    })),
  }));
}

/** How each number of an adapter has changed. */
function changes(before: string, after: string): number[] {
  const [old, now] = [before, after].map((folder) => readSafetensors(join(folder, 'adapter_model.safetensors')));
  return [...old].sort().flatMap(([name, { data }]) => [...data].map((one, i) => now.get(name)!.data[i] - one));
}

function cosine(x: readonly number[], y: readonly number[]): number {
  return x.reduce((sum, one, i) => sum + one * y[i], 0) / (Math.hypot(...x) * Math.hypot(...y));
}
