/** A policy that a training server trains: the contract of policies in both dialects, and what is its own. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TokenAnswer, TokenRequest } from '../../../../src/train/policies/tokens/batch.js';
import type { TokenSampling } from '../../../../src/train/policies/tokens/sampling.js';
import type { SampledAnswer } from '../../../../src/train/policies/vllm/sampler.js';
import { StubTinker } from './stub_tinker.js';
import { writeCheckpoint } from '../../../support/checkpoint.js';
import { testFolders } from '../../../support/folder.js';
import { policyContract } from '../contract.js';
import { trainGroupsOf, request, reward, sampled, trained } from './lessons.js';
import { how, picturedPrompt, prompts, servedPolicy, SIDE, sight, VOCABULARY } from './served.js';
import { storm } from './storm.js';

const stubs: StubTinker[] = [];
const started = async (options: Partial<ConstructorParameters<typeof StubTinker>[0]> = {}): Promise<StubTinker> => {
  const stub = await new StubTinker({ vocabulary: VOCABULARY, dialect: 'proto', mostModels: 64, ...options }).listen();
  stubs.push(stub);
  return stub;
};
afterAll(async () => void (await Promise.all(stubs.map((stub) => stub.close()))));

const shared: Partial<Record<'proto' | 'json' | 'averaging' | 'seeing', StubTinker>> = {};
beforeAll(async () => {
  for (const dialect of ['proto', 'json'] as const) shared[dialect] = await started({ dialect });
  shared.averaging = await started({ averages: true });
  shared.seeing = await started({ pictureSide: SIDE });
});

policyContract<TokenRequest, TokenAnswer, TokenSampling>('tokens, at a training server that averages', {
  open: () => servedPolicy(shared.averaging!, { reduction: 'mean_per_datum' }),
  prompts,
  how,
  learningRate: 0.05,
  tolerance: 1e-5,
  learnsOnce: true,
});

for (const dialect of ['proto', 'json'] as const) {
  policyContract<TokenRequest, TokenAnswer, TokenSampling>(`tokens, at a training server that speaks ${dialect}`, {
    open: () => servedPolicy(shared[dialect]!),
    prompts,
    how,
    learningRate: 0.05,
    tolerance: 1e-5,
  });
}

policyContract<TokenRequest, TokenAnswer, TokenSampling>('tokens that stand behind images, at a training server', {
  open: () => servedPolicy(shared.seeing!, { sees: sight }),
  prompts: [await picturedPrompt(1), await picturedPrompt(2)],
  how,
  learningRate: 0.05,
  tolerance: 1e-5,
});

describe('a policy at a training server', () => {
  const folders = testFolders('served');

  it('learns what is rewarded', async () => {
    const policy = servedPolicy(await started());
    const before = reward(await sampled(policy, request('held out', 64)));
    await trained(policy, 0, 15);
    expect(reward(await sampled(policy, request('held out', 64)))).toBeGreaterThan(before + 0.2);
    await policy.dispose();
  });

  it('has the same weights whatever the server makes of the losses of tokens', async () => {
    const weights: (readonly number[])[] = [];
    for (const averages of [false, true]) {
      const stub = await started({ averages });
      const policy = servedPolicy(stub, { reduction: averages ? 'mean_per_datum' : 'sum' });
      await trained(policy, 0, 4);
      weights.push(stub.weights);
      await policy.dispose();
    }
    const [sum, mean] = weights;
    sum.forEach((one, i) => expect(Math.abs(mean[i] - one)).toBeLessThan(1e-4));
  });

  it('ends at the same weights through faults, and takes no step twice', async () => {
    const plain = await started();
    const straight = servedPolicy(plain);
    await trained(straight, 0, 25);
    const stub = await started();
    const counts = storm(stub, 0.3);
    const policy = servedPolicy(stub);
    await trained(policy, 0, 25);
    stub.fault = () => null;
    expect([...counts.values()].reduce((sum, one) => sum + one, 0)).toBeGreaterThan(50);
    expect(stub.steps).toBe(25);
    expect(stub.weights).toEqual(plain.weights);
    expect(await policy.checksum()).toBe(await straight.checksum());
    await Promise.all([policy.dispose(), straight.dispose()]);
  });

  it('continues from its last checkpoint, and takes answers that are stored', async () => {
    const folder = folders();
    const stub = await started();
    const stored = new Map<string, SampledAnswer>();
    const first = servedPolicy(stub, { stored });
    await trained(first, 0, 2);
    writeCheckpoint(folder, await first.files());
    await trained(first, 2, 3);
    const weights = stub.weights;
    // It is started again, and has what was saved alone.
    stub.restart();
    const asked = stub.requests.filter(({ path }) => path === '/asample').length;
    const second = servedPolicy(stub, { stored });
    await second.restore(folder, 2);
    await trained(second, 2, 3);
    expect(stub.weights).toEqual(weights);
    expect(second.steps).toBe(3);
    expect(stub.requests.filter(({ path }) => path === '/asample').length).toBe(asked);
    stub.saved.clear();
    const third = servedPolicy(stub);
    await expect(third.restore(folder, 2)).rejects.toMatchObject({ code: 'checkpoint' });
    await Promise.all([second.dispose(), third.dispose()]);
  });

  it('samples with the weights that were published last, whatever is learned meanwhile; a resumed run finds such answers', async () => {
    const folder = folders();
    const stub = await started({ dialect: 'json' });
    const stored = new Map<string, SampledAnswer>();
    const count = (wanted: string): number => stub.requests.filter(({ path }) => path === wanted).length;
    const policy = servedPolicy(stub, { stored });
    const first = await sampled(policy, request('first'));
    await policy.learn(trainGroupsOf(first), { policy: 'reinforce', kl: null });
    // The server told of these: no pass is needed.
    expect(count('/forward')).toBe(0);
    await policy.step(0.5);
    const ahead = await policy.sample(request('ahead'));
    stored.clear();
    expect(await policy.sample(request('first'))).toEqual(first);
    expect(await sampled(policy, request('ahead'))).not.toEqual(ahead);
    await policy.dispose();

    stored.clear();
    const again = servedPolicy(stub, { stored });
    await again.learn(trainGroupsOf(await sampled(again, request('first'))), { policy: 'reinforce', kl: null });
    await again.step(0.5);
    expect(await again.sample(request('ahead'))).toEqual(ahead);
    await again.publish('current');
    writeCheckpoint(folder, await again.files());
    const resumed = servedPolicy(stub, { stored });
    await resumed.restore(folder, 1);
    const asked = count('/asample');
    const taken = await sampled(resumed, request('ahead'));
    expect(taken).toEqual(ahead);
    expect(count('/asample')).toBe(asked);
    // What the sampler told is of older weights, and not what the gradient is taken at; computed once, it serves both.
    await resumed.learn(trainGroupsOf(taken), { policy: 'reinforce', kl: null });
    expect(count('/forward')).toBe(1);
    await resumed.statistics(trainGroupsOf(taken), 'current');
    expect(count('/forward')).toBe(1);
    await Promise.all([again.dispose(), resumed.dispose()]);
  });

  it('rejects a checkpoint of another model', async () => {
    const folder = folders();
    const stub = await started();
    const policy = servedPolicy(stub);
    writeCheckpoint(folder, await policy.files());
    const other = servedPolicy(stub, { rank: 4 });
    await expect(other.restore(folder, 0)).rejects.toThrow(/found weights of .*"rank":8.*policy.trainer is .*"rank":4/);
    const file = join(folder, 'remote.json');
    writeFileSync(file, readFileSync(file, 'utf8').slice(1));
    await expect(policy.restore(folder, 0)).rejects.toMatchObject({ code: 'checkpoint' });
    await Promise.all([policy.dispose(), other.dispose()]);
  });

  it('knows answers by their images, too, and what it has learned of them', async () => {
    const stored = new Map<string, SampledAnswer>();
    const checksums: string[] = [];
    const asked: number[] = [];
    const stub = await started({ dialect: 'json', pictureSide: SIDE });
    for (const seed of [1, 1, 2]) {
      const shown = [await picturedPrompt(seed)];
      const policy = servedPolicy(stub, { stored, sees: sight });
      await policy.publish('current');
      const [answers] = await policy.sample({ ...request('pictured'), prompts: shown, among: shown });
      asked.push(stub.requests.filter(({ path }) => path === '/asample').length);
      // The same tokens are learnt, whatever was seen.
      const learnt = answers.map((one) => ({ ...one, ids: Int32Array.of(1, 2), logProbs: Float32Array.of(-1, -1) }));
      const targets = learnt.map(() => ({ weights: Float32Array.of(1, 1), advantages: 1, reference: null, old: null }));
      await policy.learn([{ prompt: shown[0], answers: learnt, targets }], { policy: 'reinforce', kl: null });
      await policy.step(0.1);
      checksums.push(await policy.checksum());
      await policy.dispose();
    }
    expect(asked).toEqual([1, 1, 2]);
    expect(checksums[1]).toBe(checksums[0]);
    expect(checksums[2]).not.toBe(checksums[0]);
  });

  it('ends an answer where it writes an image token, which is reported once', async () => {
    const notes: string[] = [];
    const stub = await started({ pictureSide: SIDE });
    const policy = servedPolicy(stub, { notes, sees: sight });
    const shown = [await picturedPrompt(1)];
    await policy.publish('current');
    const asked = { ...request('written', 32), prompts: shown, among: shown };
    const [answers] = await policy.sample(asked);
    // All that a stand-in samples are 0 to 11, of which 9 and 10 stand for images.
    const cut = answers.filter(({ ids, finished }) => ids.length < how.maxTokens && !finished);
    expect(cut.length).toBeGreaterThan(8);
    expect(answers.flatMap(({ ids }) => [...ids]).filter((id) => id === 9 || id === 10)).toEqual([]);
    expect(answers.map(({ logProbs }) => logProbs.length)).toEqual(answers.map(({ ids }) => ids.length));
    expect(answers.some(({ finished }) => finished)).toBe(true);
    expect(notes).toEqual([expect.stringContaining('an image token') as string]);
    await policy.dispose();
  });

  it.each([
    ['takes words alone', {}, /does not accept images/, /policy.trainer to {type: onnx}/],
    ['resizes images', { pictureSide: SIDE / 2 }, /disagree on the number of tokens/, /preprocessor_config.json/],
  ])('tells of a server that %s', async (_, options, message, next) => {
    const policy = servedPolicy(await started(options), { sees: sight });
    const shown = [await picturedPrompt(1)];
    await policy.publish('current');
    await expect(policy.sample({ ...request('any'), prompts: shown, among: shown })).rejects.toMatchObject({
      message: expect.stringMatching(message) as string,
      next: expect.stringMatching(next) as string,
    });
    await policy.dispose();
  });

  it('removes what the server has saved for a checkpoint that is removed, unless another one needs it', async () => {
    const stub = await started();
    const policy = servedPolicy(stub);
    const written = async (of = policy): Promise<string> => {
      const folder = folders();
      writeCheckpoint(folder, await of.files());
      return folder;
    };
    await trained(policy, 0, 1);
    const first = await written();
    // No step in between: these are the same weights.
    const same = await written();
    await trained(policy, 1, 2);
    const later = await written();
    expect(stub.saved.size).toBe(2);
    const release = policy.release(first);
    rmSync(first, { recursive: true });
    await release?.([same, later]);
    expect(stub.saved.size).toBe(2);
    const last = policy.release(same);
    rmSync(same, { recursive: true });
    await last?.([later]);
    expect([...stub.saved.values()].map(({ steps }) => steps)).toEqual([2]);
    // It is gone already, which is as well.
    await last?.([later]);
    expect(policy.release(folders())).toBeNull();
    const others = servedPolicy(stub, { prefix: 'forked-' });
    await trained(others, 0, 1);
    const own = await written(others);
    expect(others.release(own)).toBeNull();
    await Promise.all([policy.dispose(), others.dispose()]);
  });

  it('waits for an adapter if all are in use, and has it once another run lets go of its own', async () => {
    const stub = await started({ mostModels: 1 });
    const first = servedPolicy(stub);
    await trained(first, 0, 1);
    const second = servedPolicy(stub);
    const refused = (): number => stub.requests.filter(({ path }) => path === '/create_model').length - 1;
    const work = trained(second, 0, 1);
    while (refused() < 2) await sleep(1);
    await first.dispose();
    await work;
    expect(stub.models.size).toBe(1);
    await second.dispose();
  });

  it.each<[string, Parameters<typeof started>[0], Parameters<typeof servedPolicy>[1], RegExp, RegExp]>([
    ['a wrong key', { apiKey: 'right' }, { apiKey: 'wrong' }, /status 401/, /TINKER_API_KEY/],
    ['another base model', { baseModel: 'other' }, {}, /Base model base is not served/, /Name the model/],
    ['too high a rank', { mostRank: 4 }, {}, /rank 8 is above/, /max_lora_rank/],
    ['no room for an adapter', { mostModels: 0 }, { maxWaitMs: 400 }, /Maximum number/, /max_lora_adapters/],
    ['another dialect', { dialect: 'json' }, { dialect: 'proto' }, /status 422/, /server log/],
  ])('tells of %s', async (_, options, own, message, next) => {
    const policy = servedPolicy(await started(options), own);
    const work = trained(policy, 0, 1);
    await expect(work).rejects.toMatchObject({
      message: expect.stringMatching(message) as string,
      next: expect.stringMatching(next) as string,
    });
    await expect(work).rejects.not.toThrow(/wrong\b.*key|right/);
    await policy.dispose();
  });

  it.each<[string, (all: number[][]) => number[][], RegExp]>([
    ['of another number of datums', (all) => all.slice(1), /results for 16 datums/],
    ['of another length', ([first, ...rest]) => [first.slice(1), ...rest], /datum 0 has/],
    ['that are not finite', ([[, ...first], ...rest]) => [[NaN, ...first], ...rest], /token 0 of datum 0/],
  ])('rejects log-probabilities %s', async (_, change, message) => {
    const stub = await started();
    const policy = servedPolicy(stub);
    stub.fault = ({ path }) => (path === '/forward_backward' ? { kind: 'log_probs', change } : null);
    await expect(trained(policy, 0, 1)).rejects.toThrow(message);
    await policy.dispose();
  });

  it('rejects tokens that the tokenizer does not have', async () => {
    const stub = await started({ vocabulary: VOCABULARY + 8 });
    const policy = servedPolicy(stub);
    await expect(sampled(policy, request('beyond', 32))).rejects.toThrow(/sampled token 1[2-9]/);
    await policy.dispose();
  });
});
