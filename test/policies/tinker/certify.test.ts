/** What is found of a training server before a run: nothing at one that is right, and for each flaw what it is, and nothing else. */
import { afterAll, describe, expect, it } from 'vitest';
import { TinkerSession } from '../../../src/engines/tinker/session.js';
import {
  certify,
  type CertificateResult,
  type CertifyOptions,
  type OwnEngine,
} from '../../../src/policies/tokens/tinker/certificate/certify.js';
import {
  FINDING_NAMES,
  requirePassed,
  type FindingName,
} from '../../../src/policies/tokens/tinker/certificate/findings.js';
import { Bigrams } from '../../engines/tinker/bigrams.js';
import { otherModel, type Flaw } from '../../engines/tinker/flaws.js';
import { StubTinker, type TinkerStubOptions } from '../../engines/tinker/stub_tinker.js';
import { positionsOf } from '../../engines/tinker/stub_pictures.js';
import { PromptChunks } from '../../../src/policies/tokens/tinker/prompts.js';
import { connect, format, SIDE, sight, VOCABULARY, within } from './served.js';

const stubs: StubTinker[] = [];
afterAll(async () => void (await Promise.all(stubs.map((stub) => stub.close()))));

async function started(flaw: Flaw | null, options: Partial<TinkerStubOptions> = {}): Promise<StubTinker> {
  // One model at a time: each has to be let go of before the next.
  const stub = await new StubTinker({ vocabulary: VOCABULARY, dialect: 'proto', mostModels: 1, ...options }).listen();
  stub.flaw = flaw;
  stubs.push(stub);
  return stub;
}

/** As this program's own engine computes it, in float32. */
function own(change: (right: Bigrams['state']) => Bigrams['state'] = (right) => right): OwnEngine {
  const model = new Bigrams(VOCABULARY);
  model.state = change(model.state);
  return {
    logProbs: (sequences) =>
      Promise.all(
        sequences.map(async (one) => {
          const chunks = (await new PromptChunks(sight).whole(one)).map((chunk) =>
            chunk.type === 'text' ? { tokens: [...chunk.tokens] } : { ...chunk, data: Buffer.from(chunk.data) },
          );
          const { rows } = positionsOf(chunks, { vocabulary: VOCABULARY, side: SIDE });
          return Float32Array.from(one.answer, (id, t) => model.after(rows[one.prompt.length - 1 + t])[id]);
        }),
      ),
  };
}

async function certified(stub: StubTinker, options: Partial<CertifyOptions> = {}): Promise<CertificateResult> {
  const connection = connect(stub);
  const session = new TinkerSession({
    connection,
    dialect: 'auto',
    baseModel: 'base',
    lora: { rank: 8, seed: 1 },
    tags: ['test'],
    version: '0.25.0',
  });
  const asked: CertifyOptions = {
    connection,
    session,
    concurrency: 4,
    asked: (work) => work(within(60_000)),
    format,
    reduction: null,
    needsPrompts: false,
    samplesAhead: true,
    own: own(),
    sight: null,
  };
  try {
    return await certify({ ...asked, ...options });
  } finally {
    await connection.close();
  }
}

const failedOf = ({ findings }: CertificateResult): FindingName[] =>
  findings.flatMap(({ name, state }) => (state === 'failed' ? [name] : []));

/** By flaw, what it is found as. */
const found: Readonly<Record<Flaw, FindingName>> = {
  short_trainer: 'lengths',
  short_sampler: 'lengths',
  short_prompts: 'lengths',
  shifted_trainer: 'positions',
  shifted_sampler: 'positions',
  shifted_prompts: 'positions',
  other_sampler: 'sampler',
  other_base: 'prompts',
  end_left_out: 'end',
  end_unsaid: 'end',
  stop_ignored: 'end',
  wrong_sign: 'direction',
  no_step: 'direction',
  stale: 'fresh',
  one_place: 'apart',
  squares: 'reduction',
  pictures_dropped: 'pictures',
  pictures_dropped_by_sampler: 'pictures_sampled',
  pictures_dropped_by_base: 'pictures_sampled',
  pictures_unseen: 'pictures',
  pictures_resized: 'picture_tokens',
  pictures_resized_silently: 'picture_tokens',
};

describe('a training server', () => {
  it.each([
    { dialect: 'proto', averages: false, reduction: 'sum' },
    { dialect: 'proto', averages: true, reduction: 'mean_per_datum' },
    { dialect: 'json', averages: false, reduction: 'sum' },
    { dialect: 'json', averages: true, reduction: 'mean_per_datum' },
  ] as const)(
    'that is right passes in all, and leaves no model: $dialect, $reduction',
    async ({ reduction, ...own }) => {
      const stub = await started(null, own);
      for (const set of [null, reduction]) {
        const certificate = await certified(stub, { reduction: set });
        expect(certificate.findings.filter(({ state }) => state !== 'passed')).toEqual([]);
        expect(certificate.findings.length).toBe(10);
        expect(certificate.reduction).toBe(reduction);
        expect(() => requirePassed(certificate.findings, stub.url)).not.toThrow();
      }
      expect(stub.models.size).toBe(0);
    },
  );

  it.each(['proto', 'json'] as const)('whose policy sees passes in all, own engine included: %s', async (dialect) => {
    const stub = await started(null, { dialect, pictureSide: SIDE });
    const { findings } = await certified(stub, { sight, needsPrompts: true });
    expect(findings.filter(({ state }) => state !== 'passed')).toEqual([]);
    expect(findings.map(({ name }) => name)).toEqual(FINDING_NAMES);
  });

  it('that says that it takes words alone is refused with what it says', async () => {
    await expect(certified(await started(null), { sight })).rejects.toMatchObject({
      kind: 'no_pictures',
      message: expect.stringContaining('the server does not carry pictures') as string,
      next: expect.stringContaining('SkyRL in mode fsdp') as string,
    });
  });

  it("that computes pictures otherwise than the folder's model fails in that alone", async () => {
    const right = own();
    const { logProbs } = right as Extract<OwnEngine, { logProbs: unknown }>;
    const blind: OwnEngine = { logProbs: (all) => logProbs(all.map((one) => ({ ...one, pictures: [] }))) };
    const certificate = await certified(await started(null, { pictureSide: SIDE }), { sight, own: blind });
    expect(failedOf(certificate)).toEqual(['own_engine']);
  });

  it('is not asked what sampling ahead does where nothing is sampled ahead', async () => {
    const { findings } = await certified(await started('one_place'), { samplesAhead: false });
    expect(findings.map(({ name }) => name)).not.toContain('apart');
    expect(findings.every(({ state }) => state === 'passed')).toBe(true);
  });

  it('that gives a gradient which was not used to the next model is left without one', async () => {
    const stub = await started(null, { leaks: true, averages: true });
    const { findings, reduction } = await certified(stub);
    expect(findings.filter(({ state }) => state !== 'passed')).toEqual([]);
    expect(reduction).toBe('mean_per_datum');
    expect(stub.unloaded?.pending.every((one) => one === 0)).toBe(true);
  });

  it.each(Object.entries(found) as [Flaw, FindingName][])('with the flaw %s fails in %s alone', async (flaw, name) => {
    const stub = await started(flaw, { pictureSide: SIDE });
    // Log-probabilities of prompts are looked at with pictures where a run needs them.
    const certificate = await certified(stub, { reduction: 'sum', sight, needsPrompts: name === 'pictures_sampled' });
    expect(failedOf(certificate)).toEqual([name]);
    expect(() => requirePassed(certificate.findings, stub.url)).toThrow(
      expect.objectContaining({ code: 'certificate', message: expect.stringContaining(`${name}:`) as string }),
    );
    expect(stub.models.size).toBe(0);
  });

  it('that has another model than the folder fails in that alone', async () => {
    expect(failedOf(await certified(await started(null), { own: own(otherModel) }))).toEqual(['own_engine']);
  });

  it.each([
    [false, 'mean_per_datum', 1],
    [true, 'sum', 0.5],
  ] as const)(
    'whose losses are not what the settings say fails in that alone: averages %s',
    async (averages, reduction, figure) => {
      const certificate = await certified(await started(null, { averages }), { reduction });
      expect(failedOf(certificate)).toEqual(['reduction']);
      expect(certificate.findings.at(-1)).toMatchObject({
        figure,
        next: expect.stringContaining('Leave out') as string,
      });
    },
  );
});
