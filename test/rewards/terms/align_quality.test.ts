import { judgeImage } from '../../../src/rewards/judge/images.js';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { MemoryJudgementStore } from '../judge/memory_store.js';
import { alignQuality } from '../../../src/rewards/terms/align_quality.js';
import type { TermServices } from '../../../src/rewards/terms/term.js';
import { choosy, scoresText, startStubJudge, stubModel } from '../judge/stub_judge.js';
import { imageOf, termContract, wholeItem } from './term_contract.js';
import { replyingJudge, testServices } from './term_services.js';

const schema = z.strictObject(alignQuality.fields);
const reply = '{"score": [8, 5], "reasoning": "x"}';

async function make(settings: object = {}, text: string | null = reply) {
  const judge = replyingJudge(() => text);
  const models: (string | undefined)[] = [];
  const services = testServices(judge);
  const term = await alignQuality.create(schema.parse(settings), {
    ...services,
    judge: (model) => (models.push(model), services.judge(model)),
  });
  return { term, judge, models };
}

termContract('align_quality', async () => (await make()).term);

describe('align_quality', () => {
  it('is the mean of both grades', async () => {
    expect(await (await make()).term.score(wholeItem())).toEqual({
      kind: 'scored',
      value: 6.5,
      normalised: 0.65,
      parts: { 'align_quality/alignment': 8, 'align_quality/quality': 5, 'align_quality/overall': 6.5 },
    });
  });

  it('shows the source too if there is one', async () => {
    const { term, judge } = await make();
    await term.score(wholeItem());
    await term.score(wholeItem({ source: null }));
    const [source, edited] = [imageOf(1), imageOf(2)].map((picture) => judgeImage(picture, '').id);
    const shown = judge.asked.map(({ messages: [{ parts }] }) =>
      parts.flatMap((part) => (typeof part === 'string' ? [] : [part.id])),
    );
    expect(shown).toEqual([[source, edited], [edited]]);
    const texts = judge.asked.map(({ messages: [{ parts }] }) => parts[0]);
    expect(texts[0]).not.toBe(texts[1]);
    for (const text of texts) expect(text).toMatch(/\nRequest: write "STOP" on the red sign$/);
  });

  it('shows all images that an edit began from, in their order, and reports it', async () => {
    const { term, judge } = await make();
    await term.score(wholeItem({ beside: [imageOf(3), imageOf(4)] }));
    const [{ parts }] = judge.asked[0].messages;
    expect(parts.slice(1).map((part) => typeof part !== 'string' && part.id)).toEqual(
      [1, 3, 4, 2].map((seed) => judgeImage(imageOf(seed), '').id),
    );
    expect(parts[0]).toMatch(/the last one is the edited image.*picture 1, picture 2 and so on/);
    expect(parts[0]).toMatch(/\nRequest: write "STOP" on the red sign$/);
    expect(await term.score(wholeItem({ beside: [imageOf(1, 1, 300)] }))).toMatchObject({ reason: 'bad_request' });
  });

  it.each<readonly [string, string | null, string]>([
    ['one grade', '{"score": [8]}', 'unparsable'],
    ['a grade above 10', '{"score": [8, 50]}', 'out_of_range'],
    ['no answer', null, 'timeout'],
  ])('is unscored for %s', async (_name, text, reason) => {
    expect(await (await make({}, text)).term.score(wholeItem())).toMatchObject({ kind: 'unscored', reason, parts: {} });
  });

  it('is zero for an image that cannot be shown, unscored for such a source', async () => {
    const { term, judge } = await make();
    for (const edited of [null, imageOf(1, 1, 300)]) {
      expect(await term.score(wholeItem({ edited }))).toMatchObject({ kind: 'zero_by_rule', reason: 'undecodable' });
    }
    expect(await term.score(wholeItem({ source: imageOf(1, 1, 300) }))).toMatchObject({ reason: 'bad_request' });
    expect(judge.asked).toEqual([]);
  });

  it('reports it when the config is loaded, where it can', () => {
    const fieldOf = (settings: object): string | undefined => alignQuality.conflict?.(schema.parse(settings))?.field;
    expect(fieldOf({})).toBeUndefined();
    expect(fieldOf({ endpoint: 'http://gpu7:4877' })).toBe('model');
    expect(fieldOf({ api_key_env: 'OTHER_KEY' })).toBe('api_key_env');
    expect(alignQuality.ownJudge?.(schema.parse({ endpoint: 'http://gpu7:4877', model: 'm' }))).toBe(true);
    expect(alignQuality.ownJudge?.(schema.parse({ model: 'm' }))).toBe(false);
  });

  it('asks the model that it names, else the reward\u2019s', async () => {
    expect((await make()).models).toEqual([undefined]);
    expect((await make({ model: 'gpt-4o' })).models).toEqual(['gpt-4o']);
  });
});

describe('align_quality at an address of its own', () => {
  const variable = 'EDITRL_TEST_ALIGN_KEY';
  const closing: (() => Promise<void>)[] = [];
  afterEach(async () => {
    Reflect.deleteProperty(process.env, variable);
    for (const close of closing.splice(0).reverse()) await close();
  });

  it('asks there, with its key, and keeps the judgements with the run\u2019s', async () => {
    process.env[variable] = 'sk-test-4f9c0d';
    const stub = await startStubJudge(() => scoresText(9, 6));
    closing.push(stub.close);
    const store = new MemoryJudgementStore();
    const settings = schema.parse({ endpoint: stub.url.replace('/v1', ''), model: stubModel, api_key_env: variable });
    const term = await alignQuality.create(settings, testServices(undefined, { store: () => store }));
    closing.push(() => term.close());
    const outcome = await term.score(wholeItem());
    expect(outcome).toMatchObject({ kind: 'scored', value: 7.5 });
    expect(store.all()).toMatchObject([{ key: '4/2/1/align_quality', model: stubModel, scores: [9, 6] }]);
    expect(await term.score(wholeItem())).toEqual(outcome);
    expect(stub.requests).toHaveLength(1);
    await term.close();
    await term.close();
  });

  it('is asked without the fields that the config leaves out, by the name that it answers by', async () => {
    const stub = await startStubJudge(choosy(['temperature'], scoresText(9, 6), 'deployment-7'));
    closing.push(stub.close);
    const settings = schema.parse({ endpoint: stub.url, model: stubModel, model_alias: ['deployment-7'] });
    const services: TermServices = testServices(undefined, { leaveOut: ['temperature'] });
    const term = await alignQuality.create(settings, services);
    closing.push(() => term.close());
    await term.untilReady?.({ maxWaitS: 0 });
    const looked = stub.requests.length;
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'scored', value: 7.5 });
    expect(stub.requests).toHaveLength(looked + 1);
    const strict = schema.parse({ endpoint: stub.url, model: stubModel });
    const other = await alignQuality.create(strict, services);
    closing.push(() => other.close());
    await expect(other.untilReady?.({ maxWaitS: 0 })).rejects.toThrow('set model_alias of the term align_quality');
    expect(alignQuality.conflict?.(schema.parse({ model_alias: true }))?.field).toBe('model_alias');
  });
});
