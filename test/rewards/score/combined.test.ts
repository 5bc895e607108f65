import { describe, expect, it } from 'vitest';
import { ConfigError, DataError } from '../../../src/core/errors.js';
import { createReward } from '../../../src/rewards/score/combined.js';
import { scoreChunk, summarizeUnscored } from '../../../src/rewards/score/iteration.js';
import { measureTerms, rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import type { TermKind } from '../../../src/rewards/terms/term.js';
import { termKinds } from '../../../src/rewards/terms/table.js';
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { imageOf, termContract, wholeItem } from '../terms/term_contract.js';
import { replyingJudge, tableJudge, testServices, usualReplies } from '../terms/term_services.js';

const terms = (...named: object[]): object => ({ mode: null, terms: named });
const judgedAndCheap = terms({ name: 'viescore', weight: 0.75 }, { name: 'image_similarity', weight: 0.25 });

async function score(
  settings: object,
  changes: Partial<JudgeItem> = {},
  judge = tableJudge(),
): Promise<Outcome & { asked: string[] }> {
  const reward = await createReward(rewardSettingsSchema.parse(settings), testServices(judge));
  const outcome = await reward.score(wholeItem(changes));
  return { ...outcome, asked: judge.asked.map(({ key }) => key.slice(key.lastIndexOf('/') + 1)) };
}

termContract('a weighted sum', () =>
  createReward(rewardSettingsSchema.parse(judgedAndCheap), testServices(tableJudge())),
);

describe('the table', () => {
  it.each(Object.entries(termKinds))('names %s as it names itself', (name, kind: TermKind) => {
    expect(kind.name).toBe(name);
    expect(kind.description).not.toBe('');
    expect(Object.keys(kind.fields)).not.toContain('name');
    expect(Object.keys(kind.fields)).not.toContain('weight');
  });
});

describe('a reward of answers that are compared', () => {
  const made = (settings: object) =>
    createReward(
      rewardSettingsSchema.parse({ zero_if_unfinished: true, ...settings }),
      testServices(replyingJudge((question) => (question.startsWith('pairwise') ? '{"score": [5, 5]}' : null))),
    );
  const unavailable = { reason: 'timeout', detail: 'the picture did not come' } as const;

  it('lets every answer win against one that did not end, and leaves out one without an image that is no fault of its own', async () => {
    const reward = await made({ mode: 'pairwise' });
    const changes: Partial<JudgeItem>[] = [{}, { finished: false }, { unavailable }, {}];
    const items = changes.map((change, g) => wholeItem({ key: `4/2/${g}`, edited: imageOf(10 + g), ...change }));
    const outcomes = await scoreChunk(reward, items);
    expect(outcomes.map(({ kind }) => kind)).toEqual(['scored', 'zero_by_rule', 'unscored', 'scored']);
    // A tie with the other, and a win.
    expect(outcomes[0]).toMatchObject({ value: expect.closeTo(0.75, 12) as number });
  });

  it('reports whether any of its terms compares', async () => {
    expect((await made({ mode: 'jpeg_size' })).compares).toBe(false);
    expect((await made({ mode: 'pairwise' })).compares).toBe(true);
    const mixed = [
      { name: 'pairwise', weight: 0.5 },
      { name: 'jpeg_size', weight: 0.5 },
    ];
    const reward = await made({ mode: null, terms: mixed });
    expect(reward.compares).toBe(true);
    const items = [10, 11].map((seed) => wholeItem({ key: `4/2/${seed}`, edited: imageOf(seed) }));
    const [one] = await scoreChunk(reward, items);
    expect(one).toMatchObject({
      kind: 'scored',
      terms: [
        { name: 'pairwise', weight: 0.5, normalised: 0.5 },
        { name: 'jpeg_size', weight: 0.5 },
      ],
    });
  });
});

describe('an answer without an image that is no fault of its own', () => {
  it.each([{ mode: 'jpeg_size' }, judgedAndCheap, { mode: 'jpeg_size', also_compute: ['prompt_quality'] }])(
    'is unscored for the reason that is given, and nobody is asked: %j',
    async (settings) => {
      const unavailable = { reason: 'refused', detail: 'no crosses here' } as const;
      expect(await score(settings, { edited: null, unavailable })).toEqual({
        kind: 'unscored',
        reason: 'refused',
        detail: `${wholeItem().key}: no crosses here`,
        parts: {},
        asked: [],
      });
    },
  );
});

describe('terms', () => {
  it('are added up by weight, each from 0 to 1', async () => {
    // viescore: sqrt(4 * 5) of 10; the edit is its source, so as similar as can be
    const outcome = await score(judgedAndCheap, { edited: wholeItem().source });
    expect(outcome).toMatchObject({ kind: 'scored', asked: ['viescore_sc', 'viescore_pq'] });
    expect(outcome.kind === 'scored' && outcome.value).toBeCloseTo(0.75 * (Math.sqrt(20) / 10) + 0.25, 12);
    expect(outcome.parts).toMatchObject({ 'viescore/overall': Math.sqrt(20), 'image_similarity/source': 1 });
  });

  it('are recorded with their value where they are made of no parts', async () => {
    const outcome = await score(
      { mode: 'jpeg_size', also_compute: ['word_overlap'] },
      { answer: 'a red circle', expected: 'a blue circle' },
    );
    const value = 1 - outcome.parts['jpeg_size/kb'] / 500;
    expect(outcome).toMatchObject({ kind: 'scored', value, parts: { 'word_overlap/value': 0.5 } });
  });

  it('are asked at the same time', async () => {
    const first = new Map<string, number>();
    const judge = replyingJudge((question) => {
      first.set(question, judge.asked.length);
      return usualReplies[question];
    });
    await score(terms({ name: 'viescore', weight: 0.5 }, { name: 'ground_score', weight: 0.5 }), {}, judge);
    // Every question was in flight before the first was answered.
    expect(Math.min(...first.values())).toBe(3);
  });

  it('that are zero by rule add nothing; if all are, so is the sum', async () => {
    expect(await score(judgedAndCheap, { edited: null })).toMatchObject({ kind: 'zero_by_rule', asked: [] });
    const words = terms({ name: 'format_accuracy', weight: 0.5 }, { name: 'jpeg_size', weight: 0.5 });
    expect(await score(words, { edited: null })).toMatchObject({ kind: 'scored', value: 0.5 });
  });

  it('are not asked about an answer that did not end, where that is the rule', async () => {
    expect(await score(judgedAndCheap, { finished: false })).toMatchObject({
      kind: 'zero_by_rule',
      reason: 'unfinished',
      asked: [],
    });
    expect(await score({ ...judgedAndCheap, zero_if_unfinished: false }, { finished: false })).toMatchObject({
      kind: 'scored',
    });
  });

  it('raise for an item that lacks what one of them compares with', async () => {
    const settings = terms({ name: 'viescore', weight: 0.5 }, { name: 'format_accuracy', weight: 0.5 });
    const reward = await createReward(rewardSettingsSchema.parse(settings), testServices(tableJudge()));
    const { key, instruction, source, edited, truth, finished } = wholeItem();
    const scoring = reward.score({ key, instruction, source, edited, truth, finished });
    await expect(scoring).rejects.toThrow(DataError);
    await expect(scoring).rejects.toThrow(/'format_accuracy' compares with a labeled answer in words/);
    await expect(score(judgedAndCheap, { source: null })).rejects.toThrow(/source image/);
  });

  it('call each other off when one raises', async () => {
    let calledOff = false;
    const judge = tableJudge();
    const slow = {
      ask: (...[query, signal]: Parameters<typeof judge.ask>) => {
        signal?.addEventListener('abort', () => (calledOff = true));
        return judge.ask(query, signal);
      },
    };
    const settings = terms({ name: 'viescore', weight: 0.5 }, { name: 'format_accuracy', weight: 0.5 });
    const reward = await createReward(rewardSettingsSchema.parse(settings), testServices(slow));
    await expect(reward.score(wholeItem({ expected: '' }))).rejects.toThrow(DataError);
    expect(calledOff).toBe(true);
  });
});

describe('what is only recorded', () => {
  it.each<readonly [string, string, Partial<JudgeItem>]>([
    ['ocr', 'an instruction without quotes', { instruction: 'remove the sign' }],
    ['format_accuracy', 'a label that names no action', { expected: 'nothing' }],
    ['ground_score', 'no label', { truth: null }],
  ])('leaves out an item that lacks what %s compares with: %s', async (name, _what, changes) => {
    const reward = await createReward(
      rewardSettingsSchema.parse({ mode: 'image_similarity', also_compute: [name] }),
      testServices(tableJudge()),
    );
    const outcome = await reward.score(wholeItem({ edited: wholeItem().source, ...changes }));
    await reward.close();
    expect(outcome).toEqual({ kind: 'scored', value: 1, normalised: 1, parts: { 'image_similarity/source': 1 } });
  });
});

describe('making a reward', () => {
  it('raises if a term cannot be made, for a judge that is missing', async () => {
    await expect(createReward(rewardSettingsSchema.parse({}), testServices())).rejects.toThrow(ConfigError);
  });
});

describe('measures', () => {
  const measured = { mode: 'jpeg_size', measure: [{ name: 'viescore' }, { name: 'image_similarity' }] };
  const scoreOf = async (key: string, changes: Partial<JudgeItem> = {}, judge = tableJudge()) => {
    const { measure, ...reward } = measured;
    const settings = { ...rewardSettingsSchema.parse(reward), measure: measureTerms.parse(measure) };
    const made = await createReward(settings, testServices(judge));
    return { outcome: await made.score(wholeItem({ ...changes, key })), asked: judge.asked.length };
  };

  it('score held-out answers on their own scales, and leave the reward as it is', async () => {
    const { outcome } = await scoreOf('validation/5/s/sampled/0');
    // viescore: sqrt(4 * 5) of 10
    expect(outcome.measures?.['viescore']).toMatchObject({ kind: 'scored', value: Math.sqrt(20) });
    expect(outcome.measures?.['image_similarity']).toMatchObject({ kind: 'scored' });
    const alone = await createReward(rewardSettingsSchema.parse({ mode: 'jpeg_size' }), testServices());
    expect({ ...outcome, measures: undefined }).toEqual({ ...(await alone.score(wholeItem())), measures: undefined });
  });

  it('never score an answer of training, and ask no one about it', async () => {
    const { outcome, asked } = await scoreOf('5/0/1');
    expect(outcome).not.toHaveProperty('measures');
    expect(asked).toBe(0);
  });

  it('leave out what an item lacks, and say of an answer that its judge did not score that it is unscored', async () => {
    const lacking = await scoreOf('validation/5/s/sampled/0', { source: null });
    expect(Object.keys(lacking.outcome.measures ?? {})).toEqual([]);
    const { outcome } = await scoreOf(
      'validation/5/s/sampled/0',
      {},
      replyingJudge(() => null),
    );
    expect(outcome.kind).toBe('scored');
    expect(outcome.measures?.['viescore']).toMatchObject({ kind: 'unscored' });
    expect(summarizeUnscored([outcome])).toMatchObject({ unscored: 1, judged: 1 });
  });
});
