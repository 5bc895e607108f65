/**
 * A real vLLM: weights that it loads while it runs, and the log-probabilities that it gives for its samples. Left out unless EDITRL_VLLM names a
 * Python environment that has vLLM (docs/guide/gpus-and-servers.md).
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { freePort } from '../../../../src/launch/processes/supervise.js';
import type { DecoderConfig } from '../../../../src/compute/nets/decoder/config.js';
import { EVERY_FRAME } from '../../../../src/train/policies/vllm/images.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { RULES_PROCESSOR } from '../../../../src/train/policies/vllm/sampler.js';
import { writeModules } from '../../../../src/launch/servers/vllm.js';
import type { TokenPolicy } from '../../../../src/train/policies/tokens/policy.js';
import { EXACT, hasVllm, LEFT_OUT, ON_CPU, VLLM } from './real_vllm.js';
import { smallConfig, writeLlama } from './small_base.js';
import { testFolder, testFolders } from '../../../support/folder.js';
import { openBlocks, writeBlocksBase } from './blocks_base.js';
import { largestMismatch, learn, sampledPolicy, type Trains } from './sampled_policy.js';
import { pixels, seeingPrompts, writeSeeingBase } from './seeing_base.js';

const LONGEST_START_MS = 300_000;

/** A Llama of random weights with heads of a size that vLLM's kernels have. */
const sizes: DecoderConfig = {
  ...smallConfig,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  head_dim: 32,
};

/** Starts it with these further flags and variables; it ends with the tests of the suite that calls this. */
function serving(model: () => string, flags: readonly string[], variables: Readonly<Record<string, string>>) {
  const folders = testFolders('real-vllm');
  let url: string;
  let server: ChildProcess | undefined;
  beforeAll(async () => {
    const port = await freePort();
    const logFile = join(folders(), 'log');
    const log = openSync(logFile, 'a');
    const [program, ...serve] = VLLM;
    const place = [...serve, model(), '--host', '127.0.0.1', '--port', String(port)];
    const more = ['--logprobs-mode', 'processed_logprobs', '--generation-config', 'vllm', ...flags];
    server = spawn(program, [...place, ...EXACT, ...more], {
      // Its engine is a process of its own, which ends with the group.
      detached: true,
      stdio: ['ignore', log, log],
      env: { ...ON_CPU, ...process.env, ...variables },
    });
    closeSync(log);
    url = `http://127.0.0.1:${port}`;
    const answers = (): Promise<boolean> =>
      fetch(`${url}/health`).then(
        ({ ok }) => ok,
        () => false,
      );
    const end = Date.now() + LONGEST_START_MS;
    while (!(await answers())) {
      if (server.exitCode !== null || Date.now() > end) {
        throw new Error(`vLLM did not start: ${readFileSync(logFile, 'utf8').slice(-2000)}`);
      }
      await new Promise((wait) => setTimeout(wait, 500));
    }
  }, LONGEST_START_MS + 10_000);
  afterAll(() => {
    if (server?.pid !== undefined && server.exitCode === null) process.kill(-server.pid, 'SIGKILL');
  });
  return { url: () => url, folders };
}

/** Samples, learns, brings what is learnt, and samples again: what the trainer finds is what the server told, each time. */
async function followsTraining(
  policy: TokenPolicy,
  learningRate: number,
  asked: readonly TokenPrompt[] = [[3, 1], [5], [4, 4, 0], [8, 9]].map((ids) => ({ ids })),
): Promise<void> {
  const prompts = asked.map((tokens) => ({ tokens }));
  const sample = (): Promise<TokenAnswer[][]> =>
    policy.sample({
      prompts,
      among: prompts,
      answersPerPrompt: 16,
      how: { temperature: 0.8, topP: 1, topK: -1, maxTokens: 8, logProbTemperature: 0.8 },
      weights: 'current',
      random: (p, g) => new RandomStream('real vllm', p, g),
      key: (p, g) => `1/${p}/${g}`,
    });
  const mismatch = (answers: readonly TokenAnswer[][]): Promise<number> => largestMismatch(policy, prompts, answers);
  try {
    await policy.publish('current');
    const first = await sample();
    expect(await mismatch(first)).toBeLessThan(1e-4);
    await learn(policy, learningRate);
    // What the server has is not what is trained any more.
    expect(await mismatch(first)).toBeGreaterThan(0.01);
    await policy.publish('current');
    const second = await sample();
    expect(await mismatch(second)).toBeLessThan(1e-4);
    expect(new Set(second.flat().map(({ ids }) => ids.join())).size).toBeGreaterThan(16);
  } finally {
    await policy.dispose();
  }
}

describe.skipIf(!hasVllm)(`a real vLLM${LEFT_OUT}`, () => {
  const base = writeLlama(testFolder('real-vllm-base'), sizes, { embedding_std: 0.8, initializer_range: 0.2 });

  describe('with adapters', () => {
    const flags = ['--max-model-len', '16', '--enable-lora', '--max-lora-rank', '8'];
    const { url, folders } = serving(() => base, flags, { VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' });

    it('samples from the weights that are trained, and gives the log-probabilities that the trainer computes', async () => {
      await followsTraining(sampledPolicy({ url: url() }, { base, folder: folders(), temperature: 0.8 }).policy, 0.1);
    }, 120_000);
  });

  describe('with all weights', () => {
    const flags = ['--max-model-len', '16', '--enable-scale-out'];
    const { url, folders } = serving(() => base, flags, { VLLM_SERVER_DEV_MODE: '1' });

    it('reads them again, and samples from the weights that are trained', async () => {
      const given = { base, folder: folders(), temperature: 0.8, trains: 'whole' } as const;
      await followsTraining(sampledPolicy({ url: url() }, given).policy, 0.01);
    }, 120_000);
  });

  describe.each<Trains>(['adapter', 'whole'])('that sees, with %s weights', (trains) => {
    const seeing = writeSeeingBase(testFolder('real-vllm-seeing'));
    const { min_pixels, max_pixels } = pixels.image;
    const size = { shortest_edge: min_pixels, longest_edge: max_pixels };
    const look = ['--mm-processor-kwargs', JSON.stringify({ size }), '--media-io-kwargs', EVERY_FRAME];
    const adapters = trains === 'adapter' ? ['--enable-lora', '--max-lora-rank', '8'] : [];
    const { url, folders } = serving(
      () => seeing,
      ['--max-model-len', '128', '--enable-scale-out', ...look, ...adapters],
      { VLLM_SERVER_DEV_MODE: '1', VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' },
    );

    it('sees images and clips as the trainer does', async () => {
      const given = { base: seeing, folder: folders(), temperature: 0.8, trains, sees: true } as const;
      const { policy } = sampledPolicy({ url: url() }, given);
      await followsTraining(policy, trains === 'adapter' ? 0.1 : 0.01, await seeingPrompts());
    }, 120_000);
  });

  describe('with the rules of image blocks', () => {
    const blocks = writeBlocksBase(testFolder('real-vllm-blocks'));
    const modules = testFolder('real-vllm-modules');
    writeModules(modules);
    const flags = ['--max-model-len', '64', '--enable-scale-out', '--logits-processors', RULES_PROCESSOR];
    const { url } = serving(() => blocks, [...flags, '--no-async-scheduling'], {
      PYTHONPATH: modules,
      VLLM_USE_V2_MODEL_RUNNER: '0',
    });

    it.each(['forced', 'sampled'] as const)(
      'samples what the format allows, with a header that is %s',
      async (header) => {
        const { sampler, sample, parsed } = openBlocks({ url: url(), base: blocks }, header);
        try {
          const found = parsed(await sample(16));
          // The words before the block may take up all the room.
          expect(found.filter(({ grid }) => grid !== null).length).toBeGreaterThan(8);
          expect(new Set(found.map(({ grid }) => String(grid?.codes))).size).toBeGreaterThan(8);
        } finally {
          await sampler.dispose();
        }
      },
      120_000,
    );
  });
});
