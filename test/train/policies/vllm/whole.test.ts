/** All weights of a policy on a stand-in of vLLM that reads them anew: what is written, what is noticed, and what goes wrong. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError } from '../../../../src/core/errors.js';
import { RandomStream } from '../../../../src/core/random.js';
import { readSafetensors } from '../../../../src/core/safetensors.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenPolicy } from '../../../../src/train/policies/tokens/policy.js';
import { writeSmallBase } from './small_base.js';
import { StubVllm, type StubOptions } from './stub_vllm.js';
import { fastClock } from '../../../rewards/judge/stub_judge.js';
import { testFolder, testFolders } from '../../../support/folder.js';
import { brief, learn, sampledPolicy, type SampledOptions } from './sampled_policy.js';

const base = writeSmallBase(testFolder('vllm-base'));
const folders = testFolders('vllm-whole');
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function started(stubbed: Partial<StubOptions> = {}, options: Partial<SampledOptions> = {}) {
  const stub = await StubVllm.start({ base, logprobsMode: 'processed_logprobs', ...stubbed });
  closers.push(() => stub.close());
  const folder = folders();
  const made = sampledPolicy(stub, { base, folder, trains: 'whole', ...options });
  closers.push(() => made.policy.dispose());
  return { ...made, stub, folder };
}

const prompts = [[3, 1], [5]].map((ids) => ({ tokens: { ids } }));

function sample(policy: TokenPolicy, seed = 'whole'): Promise<TokenAnswer[][]> {
  return policy.sample({
    prompts,
    among: prompts,
    answersPerPrompt: 2,
    how: { temperature: 1, topP: 1, topK: -1, maxTokens: 6, logProbTemperature: 1 },
    weights: 'current',
    random: (p, g) => new RandomStream(seed, p, g),
    key: (p, g) => `1/${p}/${g}`,
  });
}

async function failureOf(work: Promise<unknown>): Promise<string> {
  const error: unknown = await work.catch((found: unknown) => found);
  expect(error).toBeInstanceOf(EndpointError);
  return (error as EndpointError).toText();
}

describe('weights that a server reads again', () => {
  it('are all of them, in one folder whose name identifies them', async () => {
    const { policy, folder } = await started();
    await policy.publish('current');
    await learn(policy);
    await policy.publish('current');
    const [name, ...others] = readdirSync(folder);
    expect(others).toEqual([]);
    expect(name).toMatch(/^editrl-test-3-[0-9a-f]{12}$/);
    const written = readSafetensors(join(folder, name, 'model.safetensors'));
    expect(written).toEqual(policy.model.weights);
    expect(readdirSync(join(folder, name))).toEqual(['model.safetensors']);
  });

  it('are replaced between answers, never during one, and what was cached under others is not used', async () => {
    const { policy, stub } = await started();
    await policy.publish('current');
    await sample(policy);
    const paths = stub.requests.map(({ path }) => path).slice(0, -4);
    expect(paths).toEqual([
      '/pause?mode=wait',
      '/update_weight_version',
      '/weight_checker',
      '/weight_checker',
      '/collective_rpc',
      '/weight_checker',
      '/update_weight_version',
      '/resume',
    ]);
    const salts = (): Set<unknown> =>
      new Set(stub.requestsOf('/inference/v1/generate').map(({ body }) => body['cache_salt']));
    expect(salts().size).toBe(1);
    await learn(policy);
    await policy.publish('current');
    await sample(policy, 'again');
    expect(salts().size).toBe(2);
    const [{ body }] = stub.requestsOf('/inference/v1/generate');
    expect(body['sampling_params']).toMatchObject({
      ignore_eos: true,
      repetition_penalty: 1,
      min_p: 0,
      detokenize: false,
    });
  });

  it.each([
    ['deaf', /did not change: dp0:tp0:model.embed_tokens.weight/],
    ['partly', /1 of \d+ did not change: dp0:tp0:lm_head.weight/],
  ] as const)('that did not arrive are noticed: %s', async (reloads, said) => {
    const { policy, stub } = await started();
    await policy.publish('current');
    stub.weights.reloads = reloads;
    await learn(policy);
    expect(await failureOf(policy.publish('current'))).toMatch(said);
    // Nobody else has to wait for a server that this run has given up.
    expect(stub.weights.paused).toBe(false);
    expect(stub.weights.version).toBe('editrl-replaced');
  });

  it('are rejected to a server whose weights cannot be verified', async () => {
    const { policy, stub } = await started();
    stub.weights.hasDigests = false;
    expect(await failureOf(policy.publish('current'))).toMatch(/no digests of its weights.*\n.*Train an adapter/);
    expect(stub.weights.paused).toBe(false);
  });

  it('of an earlier attempt go, and a server that it left paused continues', async () => {
    const { loader, stub, folder } = await started();
    stub.weights.paused = true;
    mkdirSync(join(folder, 'left'));
    writeFileSync(join(folder, 'left', 'model.safetensors'), 'unfinished');
    await loader.clear(brief());
    expect(stub.weights.paused).toBe(false);
    expect(existsSync(folder)).toBe(false);
  });
});

describe('a server', () => {
  it.each<[string, Partial<StubOptions>, Partial<SampledOptions>, string]>([
    ['keeps its weights', { devMode: false }, {}, 'with VLLM_SERVER_DEV_MODE=1 in its environment'],
    [
      'does not see the folder',
      {},
      { loader: { seenAs: '/elsewhere' }, clock: fastClock(50) },
      'Set rollout.engine.adapter_dir to a shared folder',
    ],
  ])('that %s is told with what can be done', async (_name, stubbed, options, said) => {
    const { policy } = await started(stubbed, options);
    expect(await failureOf(policy.publish('current'))).toContain(said);
  });

  it('that does not report the name of its weights is rejected with advice', async () => {
    const { policy, stub } = await started({ scaleOut: false });
    await policy.publish('current');
    expect(await failureOf(sample(policy))).toContain('with --enable-scale-out');
    const older = await started();
    await older.policy.publish('current');
    older.stub.fault = ({ path }) =>
      path === '/inference/v1/generate'
        ? { kind: 'changed', change: (choice) => ({ ...choice, weight_versions: undefined }) }
        : null;
    expect(await failureOf(sample(older.policy))).toContain('needs vLLM 0.32 or later');
    expect(stub.requestsOf('/v1/completions')).toHaveLength(0);
  });
});
