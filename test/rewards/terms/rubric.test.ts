import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { checksOf } from '../../../src/rewards/terms/rubric/checks.js';
import { rubric } from '../../../src/rewards/terms/rubric.js';
import { scoreChunk } from '../../../src/rewards/score/iteration.js';
import { pictureOf, termContract, wholeItem } from './term_contract.js';
import { replyingJudge, testServices } from './term_services.js';

const list = 'must: The sign says STOP.\n2: The sign is red.\n1: There are no smears.';

function make(fields: object = {}, checks: string | null = list, answer: string | null = '{"score": [10, 5, 0]}') {
  const judge = replyingJudge((question) => (question === 'rubric_checks' ? checks : answer));
  const settings = z.strictObject(rubric.fields).parse(fields);
  return { judge, term: rubric.create(settings, testServices(judge)) };
}

termContract('rubric', () => make().term);

describe('rubric', () => {
  it('weighs how far the checks hold that the judge wrote', async () => {
    const { judge, term } = make();
    const outcome = await (await term).score(wholeItem());
    const value = expect.closeTo((3 * 1 + 2 * 0.5) / 6, 12) as number;
    expect(outcome).toEqual({
      kind: 'scored',
      value,
      normalised: value,
      parts: { 'rubric/value': value, 'rubric/share': value, 'rubric/must': 1, 'rubric/checks': 3 },
    });
    const [write, check] = judge.asked;
    expect(write).toMatchObject({ key: '4/2/1/rubric_checks', format: null, temperature: 0 });
    expect(write.messages[0].parts[0]).toMatch(/2 to 6 checks[^]*\nInstruction: write "STOP" on the red sign$/);
    expect(check.key).toBe('4/2/1/rubric');
    expect(check.messages[0].parts[0]).toMatch(
      /1\. The sign says STOP\.\n2\. The sign is red\.\n3\. There are no smears\.\n[^]*3 of them:\n\{"score": \[n1, n2, n3\]/,
    );
    expect(check.format?.schema).toMatchObject({ properties: { score: { minItems: 3, maxItems: 3 } } });
    const digests = [pictureOf(1), pictureOf(2)].map((picture) => testServices().images.prepare(picture, '').digest);
    expect(check.messages[0].parts.slice(1).map((part) => (typeof part === 'string' ? part : part.digest))).toEqual(
      digests,
    );
  });

  it('is worth nothing where what must hold does not', async () => {
    const copied = await (await make({}, list, '{"score": [0, 10, 10]}').term).score(wholeItem());
    expect(copied).toMatchObject({ value: 0, parts: { 'rubric/must': 0, 'rubric/share': 0.5 } });
    const half = await (await make({}, list, '{"score": [5, 10, 10]}').term).score(wholeItem());
    expect(half).toMatchObject({ value: expect.closeTo(((1.5 + 3) / 6) * 0.5, 12) as number });
  });

  it('asks for the checks of a group once, in the name of its first answer', async () => {
    const { judge, term } = make();
    const items = [0, 1, 2].map((g) => wholeItem({ key: `4/2/${g}` }));
    await scoreChunk(await term, items);
    const keys = judge.asked.map(({ key }) => key);
    expect(keys.filter((key) => key.endsWith('rubric_checks'))).toEqual(['4/2/0/rubric_checks']);
    expect(keys).toHaveLength(4);
  });

  it('asks for none where they are given', async () => {
    const checks = [{ check: 'There is a dog.' }, { check: 'It is brown.', weight: 3 }];
    const { judge, term } = make({ checks }, null, '{"score": [10, 0]}');
    expect(await (await term).score(wholeItem({ source: null }))).toMatchObject({ kind: 'scored', value: 0.25 });
    expect(judge.asked.map(({ key }) => key)).toEqual(['4/2/1/rubric']);
    expect(judge.asked[0].messages[0].parts).toHaveLength(2);
  });

  it.each<readonly [string, string | null, string | null, string]>([
    ['no list in time', null, '{"score": [1, 1, 1]}', 'timeout'],
    ['no list at all', 'I would look at the sign.', '{"score": [1, 1, 1]}', 'unparsable'],
    ['one check alone', 'must: It says STOP.', '{"score": [1]}', 'unparsable'],
    ['more checks than allowed', `${list}\n1: a\n1: b\n1: c\n1: d`, '{"score": [1, 1, 1, 1, 1, 1, 1]}', 'unparsable'],
    ['a check that is said twice', 'must: Red.\n2: red.', '{"score": [1, 1]}', 'unparsable'],
    ['a refusal', "I'm sorry, but I can't help with that.", '{"score": [1, 1, 1]}', 'refused'],
    ['too few answers', list, '{"score": [10, 10]}', 'unparsable'],
    ['answers out of range', list, '{"score": [10, 10, 100]}', 'out_of_range'],
    ['no answer', list, null, 'timeout'],
  ])('is unscored for %s', async (_name, checks, answer, reason) => {
    const outcome = await (await make({}, checks, answer).term).score(wholeItem());
    expect(outcome).toMatchObject({ kind: 'unscored', reason });
  });

  it('says how many questions it asks', () => {
    const questions = (fields: object, answers: number): number | undefined =>
      rubric.questions?.(z.strictObject(rubric.fields).parse(fields), answers);
    expect(questions({}, 8)).toBe(9);
    expect(questions({}, 1)).toBe(2);
    expect(questions({ checks: [{ check: 'a' }] }, 8)).toBe(8);
  });
});

describe('a list of checks', () => {
  it('is read in the ways in which models write lists', () => {
    const reply =
      '<think>must: no</think>\nHere they are:\n\n- **must:** The cat is black.\n2. 3: The sofa stays.\n* 1 : No smears.\nMUST：A hat.';
    expect(checksOf(reply)).toEqual([
      { check: 'The cat is black.', weight: 3, must: true },
      { check: 'The sofa stays.', weight: 3, must: false },
      { check: 'No smears.', weight: 1, must: false },
      { check: 'A hat.', weight: 3, must: true },
    ]);
  });

  it('has no weights but those that may be given', () => {
    expect(checksOf('4: a\n0: b\n12: c\nmust a: d\n2:\n2: e')).toEqual([{ check: 'e', weight: 2, must: false }]);
  });
});
