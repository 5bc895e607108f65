import { judgeImage } from '../../../src/rewards/judge/images.js';
import { describe, expect, it } from 'vitest';
import { logitExpectation } from '../../../src/rewards/terms/logit_expectation.js';
import { imageOf, termContract, wholeItem } from './term_contract.js';
import { replyingJudge, testServices } from './term_services.js';

const worked = '[["5",-0.35],["4",-1.4],["3",-3.6],["2",-6.1],[" ",-4.2]]';

async function make(reply: string | null = worked, settings: { model?: string } = {}) {
  const judge = replyingJudge(() => reply);
  const models: (string | undefined)[] = [];
  const services = testServices(judge);
  const term = await logitExpectation.create(
    { model: null, ...settings },
    { ...services, judge: (model) => (models.push(model), services.judge(model)) },
  );
  return { term, judge, models };
}

termContract('logit_expectation', async () => (await make()).term);

describe('logit_expectation', () => {
  it('is the expected digit over 5', async () => {
    const { term, judge } = await make();
    const outcome = await term.score(wholeItem());
    const near = (value: number): number => expect.closeTo(value, 3) as number;
    expect(outcome).toEqual({
      kind: 'scored',
      value: near(0.937),
      normalised: near(0.937),
      parts: { 'logit_expectation/expected_digit': near(4.686), 'logit_expectation/coverage': near(0.981) },
    });
    const [query] = judge.asked;
    expect(query).toMatchObject({
      key: '4/2/1/logit_expectation',
      maxCompletionTokens: 1,
      topLogprobs: 20,
      temperature: 0,
    });
    const [{ parts }] = query.messages;
    const digests = [imageOf(1), imageOf(2)].map((picture) => judgeImage(picture, '').id);
    expect(parts.slice(1).map((part) => (typeof part === 'string' ? part : part.id))).toEqual(digests);
    expect(parts[0]).toMatch(/\nInstruction: write "STOP" on the red sign$/);
  });

  it('is unscored where the digits have too little of the probability', async () => {
    const reply = '[["The",-0.2],["5",-2.5],["4",-3]]';
    const outcome = await (await make(reply)).term.score(wholeItem());
    expect(outcome).toMatchObject({ kind: 'unscored', reason: 'unparsable' });
    expect(outcome.parts).toHaveProperty('logit_expectation/coverage');
    if (outcome.kind === 'unscored') {
      expect(outcome.detail).toMatch(/0\.132 of the probability, less than 0\.5.*The/);
    }
  });

  it.each<readonly [string, string | null, string]>([
    ['no digit', '[["The",-0.2]]', 'unparsable'],
    ['a probability that is no number', '[["5",null]]', 'server_error'],
    ['no answer', null, 'timeout'],
  ])('is unscored for %s', async (_name, reply, reason) => {
    expect(await (await make(reply)).term.score(wholeItem())).toMatchObject({ kind: 'unscored', reason, parts: {} });
  });

  it.each([
    ['no image', null],
    ['an absurd shape', imageOf(1, 10_000, 1)],
  ])('is zero for %s, without a question', async (_name, edited) => {
    const { term, judge } = await make();
    expect(await term.score(wholeItem({ edited }))).toEqual({ kind: 'zero_by_rule', reason: 'undecodable', parts: {} });
    expect(judge.asked).toEqual([]);
  });
});
