/** A token policy whose answers vLLM samples: with which weights, what is stored and found again, and what goes wrong. */
import { gatherLines } from '../../../../src/core/group/replay.js';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { EndpointError, InternalError } from '../../../../src/core/errors.js';
import { RandomStream } from '../../../../src/core/random.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenPolicy } from '../../../../src/train/policies/tokens/policy.js';
import type { TokenSampling } from '../../../../src/train/policies/tokens/sampling.js';
import type { SampledAnswer } from '../../../../src/train/policies/vllm/sampler.js';
import { writeSmallBase } from './small_base.js';
import { StubVllm, type StubOptions } from './stub_vllm.js';
import { fastClock } from '../../../rewards/judge/stub_judge.js';
import { testFolder, testFolders } from '../../../support/folder.js';
import { onRanks } from '../../groups.js';
import { optimizer } from '../small_lesson.js';
import {
  brief,
  END,
  largestMismatch,
  learn,
  MemoryAnswers,
  sampledPolicy,
  wires,
  type SampledOptions,
  type Trains,
} from './sampled_policy.js';

const base = writeSmallBase(testFolder('vllm-base'));
const folders = testFolders('vllm-adapters');
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function startStub(options: Partial<StubOptions> = {}): Promise<StubVllm> {
  const stub = await StubVllm.start({ base, logprobsMode: 'processed_logprobs', ...options });
  closers.push(() => stub.close());
  return stub;
}

function openedAs(stub: StubVllm, options: Partial<SampledOptions> = {}) {
  const folder = options.folder ?? folders();
  const made = sampledPolicy(stub, { base, folder, ...options });
  closers.push(() => made.policy.dispose());
  return { ...made, folder };
}

const prompts = [[3, 1], [5], [4, 4, 0], [8, 9]].map((ids) => ({ tokens: { ids } }));
const plain: TokenSampling = { temperature: 1, topP: 1, topK: -1, maxTokens: 8, logProbTemperature: 1 };

function sample(
  policy: TokenPolicy,
  how: Partial<TokenSampling> = {},
  some = prompts,
  from = 0,
): Promise<TokenAnswer[][]> {
  return policy.sample({
    prompts: some,
    among: prompts,
    answersPerPrompt: 3,
    how: { ...plain, ...how },
    weights: 'current',
    random: (p, g) => new RandomStream('sampler', from + p, g),
    key: (p, g) => `1/${from + p}/${g}`,
  });
}

const mismatch = (policy: TokenPolicy, answers: readonly TokenAnswer[][]): Promise<number> =>
  largestMismatch(policy, prompts, answers);

/** The version that a name tells, without the digest that a whole model's has. */
const versions = (names: readonly string[]): string[] => names.map((name) => name.replace(/-[0-9a-f]{12}$/, ''));

describe.each<Trains>(['adapter', 'whole'])('answers under weights of one kind: %s', (trains) => {
  const wire = wires[trains];
  const opened = (stub: StubVllm, options: Partial<SampledOptions> = {}) => openedAs(stub, { trains, ...options });

  it('come from the weights that are trained, of which the server has the latest version alone', async () => {
    const stub = await startStub();
    const { policy, folder } = opened(stub);
    expect(() => sample(policy)).toThrow(InternalError);
    await policy.publish('current');
    const first = await sample(policy);
    expect(await mismatch(policy, first)).toBeLessThan(1e-5);
    for (const { ids, finished, logProbs } of first.flat()) {
      expect(ids.length).toBeLessThanOrEqual(8);
      expect(finished).toBe(ids.at(-1) === END);
      expect(logProbs).toHaveLength(ids.length);
    }
    await learn(policy);
    // Before they are published, the server samples from what it has.
    expect(await mismatch(policy, first)).toBeGreaterThan(0.05);
    await policy.publish('current');
    const second = await sample(policy);
    expect(await mismatch(policy, second)).toBeLessThan(1e-5);
    expect(second.flat().map(({ ids }) => [...ids])).not.toEqual(first.flat().map(({ ids }) => [...ids]));
    expect(versions(wire.served(stub))).toEqual(['editrl-test-3']);
    expect(readdirSync(folder)).toEqual(wire.served(stub));
    // The same weights are not brought twice.
    await policy.publish('current');
    expect(stub.requestsOf(wire.loads)).toHaveLength(2);
    await policy.dispose();
    // A server without an adapter has its own weights; in place of these there are none to go back to.
    expect(wire.served(stub)).toHaveLength(trains === 'adapter' ? 0 : 1);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('are those of the moving averages where these are asked for', async () => {
    const stub = await startStub();
    const { policy } = opened(stub, {
      policy: { optimizer: { ...optimizer, per_device_batch_size: 4, ema_decay: 0.5 } },
    });
    await learn(policy);
    await policy.publish('average');
    expect(versions(wire.served(stub))).toEqual(['editrl-test-3-average']);
    expect(() => sample(policy)).toThrow('the current weights are not published');
    const [[answer]] = await policy.sample({
      prompts: prompts.slice(0, 1),
      among: prompts,
      answersPerPrompt: 1,
      how: plain,
      weights: 'average',
      random: () => new RandomStream('average'),
      key: () => 'validation/1/0',
    });
    const [[average]] = await policy.statistics([{ prompt: prompts[0], answers: [answer] }], 'average');
    answer.logProbs.forEach((x, t) => expect(Math.abs(x - average.logProbs[t])).toBeLessThan(1e-5));
  });

  it('are the same whatever is asked together, and each has a seed of its own', async () => {
    const stub = await startStub();
    const { policy, store } = opened(stub);
    await policy.publish('current');
    const whole = await sample(policy);
    store.all.clear();
    const parts = [
      ...(await sample(policy, {}, prompts.slice(0, 1))),
      ...(await sample(policy, {}, prompts.slice(1), 1)),
    ];
    expect(parts).toEqual(whole);
    const asked = stub.requestsOf(wire.answers);
    expect(new Set(asked.map(({ body }) => wire.seed(body))).size).toBe(12);
    expect(stub.peak).toBeGreaterThan(1);
    expect(stub.peak).toBeLessThanOrEqual(8);
  });

  it('tell their log-probabilities where these are of what training sees, at its temperature', async () => {
    const told = async (
      given: Partial<SampledOptions> & { logprobsMode?: StubOptions['logprobsMode'] },
      how: Partial<TokenSampling>,
    ): Promise<number | null> => {
      const stub = await startStub({ logprobsMode: given.logprobsMode ?? 'processed_logprobs' });
      const { policy, store } = opened(stub, { temperature: how.logProbTemperature ?? 1, ...given });
      await policy.publish('current');
      const answers = await sample(policy, how);
      const isUntold = answers.flat().every(({ logProbs }) => logProbs.every(Number.isNaN));
      expect([...store.all.values()].every(({ logProbs }) => (logProbs === null) === isUntold)).toBe(true);
      return isUntold ? null : mismatch(policy, answers);
    };
    const at = (temperature: number): Partial<TokenSampling> => ({ temperature, logProbTemperature: temperature });
    expect(await told({}, at(0.6))).toBeLessThan(1e-5);
    expect(await told({ mode: 'raw', logprobsMode: 'raw_logprobs' }, at(1))).toBeLessThan(1e-5);
    expect(await told({ mode: 'raw', logprobsMode: 'raw_logprobs' }, at(0.6))).toBeNull();
    expect(await told({}, { topP: 0.9 })).toBeNull();
    expect(await told({}, { topK: 4 })).toBeNull();
    expect(await told({}, { temperature: 0 })).toBeNull();
    expect(await told({ mode: 'other' }, at(1))).toBeNull();
    expect(await told({ sampler: { separateVocabularies: true } }, at(1))).toBeNull();
  });

  it('are stored before it is used, and found again under the same weights alone', async () => {
    const stub = await startStub();
    const { policy, store } = opened(stub);
    await policy.publish('current');
    const answers = await sample(policy);
    expect(store.all.size).toBe(12);
    const asked = stub.requestsOf(wire.answers).length;

    const other = await startStub({ salt: 1 });
    const resumed = opened(other, { sampler: { store } });
    await resumed.policy.publish('current');
    expect(await sample(resumed.policy)).toEqual(answers);
    expect(other.requestsOf(wire.answers)).toHaveLength(0);
    expect(asked).toBe(12);
    // Another temperature, or other weights, make other requests.
    await sample(resumed.policy, { temperature: 0.9 });
    expect(other.requestsOf(wire.answers)).toHaveLength(12);
    await learn(resumed.policy);
    await resumed.policy.publish('current');
    await sample(resumed.policy);
    expect(other.requestsOf(wire.answers)).toHaveLength(24);
  });

  it('are handed to rank 0 by the others, which brings the weights for all', async () => {
    const stub = await startStub();
    const folder = folders();
    const kept = new MemoryAnswers();
    const all = await onRanks(2, async (group) => {
      const own: SampledAnswer[] = [];
      const store =
        group.rank === 0 ? kept : { find: () => undefined, put: (answer: SampledAnswer) => void own.push(answer) };
      const { policy } = opened(stub, {
        folder,
        sampler: {
          group,
          store,
          keep: () => gatherLines(group, { take: () => own.splice(0), put: (one) => store.put(one) }),
        },
        policy: { peers: group },
      });
      await policy.publish('current');
      const answers = await sample(policy, {}, prompts.slice(2 * group.rank, 2 * group.rank + 2), 2 * group.rank);
      expect(kept.all.size).toBeLessThanOrEqual(6);
      await policy.keep();
      await group.barrier();
      return answers;
    });
    expect(stub.requestsOf(wire.loads)).toHaveLength(1);
    expect(kept.all.size).toBe(12);
    const { policy } = opened(await startStub());
    await policy.publish('current');
    expect(all.flat()).toEqual(await sample(policy));
  });

  it('are those of the same weights where the server was started again', async () => {
    const stub = await startStub();
    const { policy } = opened(stub);
    await policy.publish('current');
    await sample(policy);
    await learn(policy);
    await policy.publish('current');
    wire.restart(stub);
    const { policy: other } = opened(await startStub(), {});
    await learn(other);
    await other.publish('current');
    expect(await sample(policy, { temperature: 1.1 })).toEqual(await sample(other, { temperature: 1.1 }));
    expect(stub.requestsOf(wire.loads)).toHaveLength(3);
    expect(versions(wire.served(stub))).toEqual(['editrl-test-3']);
    // One that forgets it again and again does not keep it.
    stub.fault = ({ path }) => {
      if (path === wire.answers) wire.restart(stub);
      return null;
    };
    await expect(sample(policy, { temperature: 1.2 })).rejects.toThrow('5 times and still does not have them');
  });
});

describe('a server', () => {
  const opened = openedAs;

  it('that has lost the old adapter, or had answered unheard, is as good as one that has not', async () => {
    const stub = await startStub();
    const { policy, folder } = opened(stub, { clock: fastClock(50) });
    await policy.publish('current');
    stub.adapters.clear();
    await learn(policy);
    let cut = false;
    stub.fault = ({ path, body }) => {
      if (path !== '/v1/load_lora_adapter' || cut) return null;
      cut = true;
      stub.adapters.set(String(body['lora_name']), { path: '', weights: new Map() });
      return { kind: 'cut' };
    };
    await policy.publish('current');
    expect([...stub.adapters.keys()]).toEqual(['editrl-test-3']);
    expect(readdirSync(folder)).toEqual(['editrl-test-3']);
  });

  it('is cleared of what an earlier attempt at the run left, and of nothing else', async () => {
    const stub = await startStub();
    const { policy, loader, folder } = opened(stub);
    await policy.publish('current');
    const other = opened(stub, { loader: { own: 'editrl-other-', prefix: 'editrl-other-' } });
    await other.policy.publish('current');
    await loader.clear(brief());
    expect([...stub.adapters.keys()]).toEqual(['editrl-other-0']);
    expect(existsSync(folder)).toBe(false);
  });

  it.each<[string, Partial<StubOptions>, Partial<SampledOptions>, string]>([
    ['takes no adapters at run time', { runtimeUpdating: false }, {}, 'VLLM_ALLOW_RUNTIME_LORA_UPDATING=True'],
    ['takes no adapters', { enableLora: false }, {}, 'Start vLLM with --enable-lora.'],
    ['takes none of this rank', { maxLoraRank: 1 }, {}, '--max-lora-rank of at least 2'],
    ['does not see the folder', {}, { loader: { seenAs: '/elsewhere' } }, 'rollout.engine.adapter_dir'],
    ['fails for another reason', { base: writeSmallBase(testFolder('vllm-other'), 2) }, {}, ''],
  ])('that %s is told with what can be done', async (name, stubbed, given, said) => {
    const stub = await startStub(stubbed);
    if (said === '') {
      stub.fault = ({ path }) => (path === '/v1/load_lora_adapter' ? { kind: 'status', status: 400 } : null);
    }
    const { policy } = opened(stub, given);
    const error: unknown = await policy.publish('current').catch((found: unknown) => found);
    expect(error, name).toBeInstanceOf(EndpointError);
    expect((error as EndpointError).toText()).toContain(said === '' ? 'Read the vLLM log' : said);
  });

  it('is found under the name that it has for the folder of adapters', async () => {
    const folder = folders();
    const stub = await startStub({ pathOf: (path) => path.replace('/mnt/adapters', folder) });
    const { policy } = opened(stub, { folder, loader: { seenAs: '/mnt/adapters/' } });
    await policy.publish('current');
    expect(stub.requestsOf('/v1/load_lora_adapter')[0].body['lora_path']).toBe(join('/mnt/adapters', 'editrl-test-0'));
  });

  it('that samples tokens which the policy has not serves another model', async () => {
    const stub = await startStub();
    const { policy } = opened(stub);
    await policy.publish('current');
    stub.fault = () => ({
      kind: 'changed',
      change: (choice) => ({ ...choice, token_ids: choice.token_ids.map(() => 99) }),
    });
    await expect(sample(policy, { maxTokens: 1 })).rejects.toThrow('sampled token 99, but the policy has 11');
  });
});
