import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Deadline } from '../../../../src/core/clock.js';
import { EndpointError } from '../../../../src/core/errors.js';
import type { ServerOptions } from '../../../../src/core/remote/remote.js';
import { VllmClient, probeLogProbs, type CompletionRequest } from '../../../../src/train/policies/vllm/client.js';
import { fastClock } from '../../../rewards/judge/stub_judge.js';
import { testFolder } from '../../../support/folder.js';
import { writeSmallBase } from './small_base.js';
import { StubVllm, type Fault, type StubOptions } from './stub_vllm.js';

const base = writeSmallBase(testFolder('vllm-base'));
/** A second passes in two milliseconds. */
const clock = fastClock(50);
const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function started(options: Partial<StubOptions> = {}): Promise<StubVllm> {
  const stub = await StubVllm.start({ base, ...options });
  closers.push(() => stub.close());
  return stub;
}

function clientOf({ url }: { readonly url: string }, options: Partial<ServerOptions> = {}): VllmClient {
  const client = new VllmClient({ url, concurrency: 4, timeoutMs: 60_000, clock, random: () => 0.5, ...options });
  closers.push(() => client.close());
  return client;
}

const within = (seconds: number): Deadline => new Deadline(clock, seconds * 1000);

const request: CompletionRequest = {
  model: base,
  prompt: [3, 1, 4],
  max_tokens: 6,
  temperature: 1,
  top_p: 1,
  top_k: 0,
  seed: 7,
  stop_token_ids: [2, 5, 8],
  logprobs: 0,
};

/** The first requests of a path go wrong, each as it is said. */
function faulty(stub: StubVllm, path: string, ...faults: readonly Fault[]): void {
  stub.fault = (asked) => (asked.path === path ? (faults.at(asked.earlier) ?? null) : null);
}
const status = (code: number, message?: string): Fault => ({
  kind: 'status',
  status: code,
  ...(message === undefined ? {} : { message }),
});

describe('an answer', () => {
  let stub: StubVllm;
  let client: VllmClient;
  beforeAll(async () => {
    stub = await StubVllm.start({ base });
    client = new VllmClient({ url: `${stub.url}/v1/`, concurrency: 4, timeoutMs: 60_000 });
  });
  afterAll(async () => {
    await client.close();
    await stub.close();
  });

  it('has its tokens, their log-probabilities and how it ended, the same for the same seed', async () => {
    const seen = new Set<string>();
    const ends = new Set<boolean>();
    for (let seed = 0; seed < 12; seed++) {
      const [one, again] = await Promise.all([0, 1].map(() => client.complete({ ...request, seed }, within(60))));
      expect(one).toEqual(again);
      expect(one!.ids.length).toBe(one!.logProbs.length);
      expect(one!.stopped).toBe([2, 5, 8].includes(one!.ids.at(-1)!));
      if (!one!.stopped) expect(one!.ids.length).toBe(6);
      for (const logProb of one!.logProbs) expect(logProb).toBeLessThan(0);
      seen.add(one!.ids.join());
      ends.add(one!.stopped);
    }
    expect(seen.size).toBeGreaterThan(8);
    expect(ends.size).toBe(2);
    // Nothing is left for the model's generation_config.json to say, and its own end tokens are ignored.
    expect(stub.requestsOf('/v1/completions')[0].body).toMatchObject({
      min_p: 0,
      repetition_penalty: 1,
      top_p: 1,
      top_k: 0,
      ignore_eos: true,
      n: 1,
      return_token_ids: true,
    });
  });

  it('is null if the server has no such model', async () => {
    expect(await client.complete({ ...request, model: 'other' }, within(60))).toBeNull();
  });

  it('lists models and reports its version', async () => {
    expect(await client.models(within(60))).toEqual([{ id: base, parent: null, max_model_len: 4096 }]);
    expect(await client.version(within(60))).toBe('0.11.0');
    expect(await client.whyNotReady(within(60))).toBeNull();
  });
});

describe('what is not asked again', () => {
  const advice = async (given: Partial<StubOptions>, more: Partial<ServerOptions>, fault?: Fault): Promise<string> => {
    const stub = await started(given);
    if (fault !== undefined) faulty(stub, '/v1/completions', fault);
    const error: unknown = await clientOf(stub, more)
      .complete(request, within(600))
      .catch((found: unknown) => found);
    expect(error).toBeInstanceOf(EndpointError);
    expect(stub.requestsOf('/v1/completions').length).toBeLessThan(2);
    return (error as EndpointError).toText();
  };

  it('is rejected with what can be done', async () => {
    expect(await advice({ apiKey: 'secret-key' }, {})).toContain('rollout.engine.api_key_env');
    expect(await advice({ maxModelLen: 8 }, {})).toContain('--max-model-len of at least policy.model_context_size');
    expect(await advice({}, {}, status(400, 'no such field'))).toContain('status 400: no such field');
    const stub = await started({ apiKey: 'secret-key' });
    expect(await clientOf(stub, { apiKey: 'secret-key' }).complete(request, within(60))).not.toBeNull();
  });

  const changed = (change: (choice: object & { token_ids: readonly number[] }) => object): Fault => ({
    kind: 'changed',
    change,
  });
  it.each<[string, Fault, string]>([
    ['a token too many', changed((one) => ({ ...one, token_ids: [...one.token_ids, 1] })), 'came with'],
    [
      'tokens after the end',
      changed((one) => ({ ...one, ...answer([2, 1, 1, 1, 1, 1], 'length') })),
      'continues after',
    ],
    ['no end', changed((one) => ({ ...one, ...answer([1, 1], 'stop') })), 'its last token is 1'],
    ['an end too early', changed((one) => ({ ...one, ...answer([1, 1], 'length') })), 'with 2 tokens of 6'],
    ['too many tokens', changed((one) => ({ ...one, ...answer([1, 1, 1, 1, 1, 1, 1], 'length') })), '1 to 6'],
    ['no log-probabilities', changed((one) => ({ ...one, logprobs: null })), 'choices.0.logprobs'],
    ['an older version', changed((one) => ({ ...one, token_ids: null })), '0.10.2'],
    ['an answer that was called off', changed((one) => ({ ...one, finish_reason: 'abort' })), 'finish_reason'],
  ])('is not right: %s', async (_name, fault, said) => {
    expect(await advice({}, {}, fault)).toContain(said);
  });
});

function answer(ids: readonly number[], finish: string): object {
  return { token_ids: ids, finish_reason: finish, logprobs: { token_logprobs: ids.map(() => -1) } };
}

describe('the mode of log-probabilities', () => {
  it.each([
    ['raw_logprobs', 'raw'],
    ['processed_logprobs', 'processed'],
    ['processed_logits', 'other'],
  ] as const)('%s is found out', async (logprobsMode, found) => {
    const stub = await started({ logprobsMode });
    for (const prompt of [[2], [5, 1], [9, 9, 0]]) {
      expect(await probeLogProbs(clientOf(stub), base, prompt, within(60))).toBe(found);
    }
  });
});
