/** What a probe of a training server finds: nothing at one that is right, and for each flaw what it is. */
import { afterAll, describe, expect, it } from 'vitest';
import { TinkerSession } from '../../../../src/train/policies/tinker/session.js';
import { ProbeError, probeServer } from '../../../../src/train/policies/tinker/probe.js';
import type { Reduction } from '../../../../src/train/policies/tinker/served.js';
import type { Flaw } from './flaws.js';
import { StubTinker, type TinkerStubOptions } from './stub_tinker.js';
import { connect, format, VOCABULARY, within } from './served.js';

const stubs: StubTinker[] = [];
afterAll(async () => void (await Promise.all(stubs.map((stub) => stub.close()))));

async function started(flaw: Flaw | null, options: Partial<TinkerStubOptions> = {}): Promise<StubTinker> {
  // One model at a time: each has to be let go of before the next.
  const stub = await new StubTinker({ vocabulary: VOCABULARY, dialect: 'proto', mostModels: 1, ...options }).listen();
  stub.flaw = flaw;
  stubs.push(stub);
  return stub;
}

async function probed(stub: StubTinker, reduction: Reduction | null = null, samplesAhead = true): Promise<Reduction> {
  const connection = connect(stub);
  const lora = { rank: 8, seed: 1 };
  const session = new TinkerSession({
    connection,
    dialect: 'auto',
    baseModel: 'base',
    lora,
    tags: [],
    version: '0.25.0',
  });
  try {
    return await probeServer({
      connection,
      session,
      concurrency: 4,
      withDeadline: (work) => work(within(60_000)),
      format,
      reduction,
      samplesAhead,
    });
  } finally {
    await connection.close();
  }
}

/** By flaw, what is said of it. */
const said: Readonly<Record<Exclude<Flaw, 'short_trainer'>, RegExp>> = {
  short_sampler: /the sampler gives \d+ log-probabilities for \d+ tokens/,
  shifted_trainer: /shifted by -?1 between sampler and trainer/,
  shifted_sampler: /shifted by -?1 between sampler and trainer/,
  other_sampler: /sampler and trainer differ by \d/,
  end_left_out: /says that it stopped, and its last token is/,
  end_unsaid: /does not say that it stopped/,
  stop_ignored: /continues after the token/,
  wrong_sign: /positive advantage changes by -/,
  no_step: /positive advantage changes by 0/,
  stale: /differ by .* after a step/,
  one_place: /older weights changes the weights that train/,
  squares: /neither summed nor averaged/,
};

describe('a training server', () => {
  it.each([
    { dialect: 'proto', averages: false, reduction: 'sum' },
    { dialect: 'proto', averages: true, reduction: 'mean_per_datum' },
    { dialect: 'json', averages: false, reduction: 'sum' },
    { dialect: 'json', averages: true, reduction: 'mean_per_datum' },
  ] as const)('that is right passes, and keeps no model: $dialect, $reduction', async ({ reduction, ...own }) => {
    const stub = await started(null, own);
    for (const set of [null, reduction]) expect(await probed(stub, set)).toBe(reduction);
    expect(stub.models.size).toBe(0);
  });

  it('that gives an unused gradient to the next model is left without one', async () => {
    const stub = await started(null, { leaks: true });
    const connection = connect(stub);
    const killed = new TinkerSession({
      connection,
      dialect: 'auto',
      baseModel: 'base',
      lora: { rank: 8, seed: 1 },
      tags: [],
      version: '0.25.0',
    });
    const deadline = within();
    await killed.begin(null, deadline);
    const ones = { logprobs: Float32Array.of(-2), advantages: Float32Array.of(1), weights: Float32Array.of(1) };
    const datum = {
      input: [{ type: 'text', tokens: Int32Array.of(1) } as const],
      lossInputs: { target_tokens: Int32Array.of(2), ...ones },
    };
    await killed.train([datum], 'importance_sampling', deadline);
    await killed.close(deadline);
    const isClean = (): boolean => stub.unloaded?.pending.every((one) => one === 0) ?? false;
    expect(isClean()).toBe(false);
    expect(await probed(stub)).toBe('sum');
    expect(isClean()).toBe(true);
    await connection.close();
  });

  it.each(Object.entries(said) as [Flaw, RegExp][])('with the flaw %s is rejected', async (flaw, found) => {
    const stub = await started(flaw);
    const error: unknown = await probed(stub).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ProbeError);
    expect((error as ProbeError).message).toMatch(found);
    expect((error as ProbeError).where).toBe(stub.url);
    expect(stub.models.size).toBe(0);
  });

  it('that samples and trains in one place passes for a run that does not sample ahead', async () => {
    expect(await probed(await started('one_place'), null, false)).toBe('sum');
  });

  it.each([
    [false, 'mean_per_datum', "'sum', and policy.trainer.reduction is 'mean_per_datum'"],
    [true, 'sum', "'mean_per_datum', and policy.trainer.reduction is 'sum'"],
  ] as const)('whose losses are not those of the settings is refused: averages %s', async (averages, set, message) => {
    await expect(probed(await started(null, { averages }), set)).rejects.toThrow(message);
  });
});
