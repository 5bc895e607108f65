import { judgeImage } from '../../../src/rewards/judge/images.js';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { scoreChunk } from '../../../src/rewards/score/iteration.js';
import type { AnswerGroup, JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { pairwise } from '../../../src/rewards/terms/pairwise.js';
import { testFolder } from '../../support/folder.js';
import { imageOf, termContract, wholeItem } from './term_contract.js';
import { replyingJudge, testServices } from './term_services.js';

const folder = testFolder('pairwise');

/** Answers of a group; the picture of the answer `g` is that of the seed `seeds[g]`. */
const groupOf = (seeds: readonly (number | null)[], key = '3/1'): JudgeItem[] =>
  seeds.map((seed, g) => wholeItem({ key: `${key}/${g}`, edited: seed === null ? null : imageOf(seed) }));

const qualities = new Map<string, number>();
for (let seed = 0; seed < 40; seed++) qualities.set(judgeImage(imageOf(seed), '').id, seed);

/** The seeds of the two images that are compared. */
const seedsOf = ({ messages }: JudgeQuery): number[] =>
  messages[0].parts.slice(2).map((part) => (typeof part === 'string' ? NaN : (qualities.get(part.id) ?? NaN)));

/** A judge that finds the image of the higher seed better, unless it is told otherwise. */
function make(
  fields: object = {},
  grade: (first: number, second: number, question: string) => string | null = (first, second) =>
    JSON.stringify({ score: [first > second ? 8 : 3, second > first ? 8 : 3], reasoning: 'x' }),
) {
  const judge = replyingJudge((question, query) => {
    const [first, second] = seedsOf(query);
    return grade(first, second, question);
  });
  const settings = z.strictObject(pairwise.fields).parse(fields);
  return { judge, term: pairwise.create(settings, testServices(judge)) };
}

const valueOf = (outcome: Outcome): number => {
  if (outcome.kind !== 'scored') throw new Error(outcome.kind);
  return outcome.value;
};

termContract('pairwise', () => make().term);

describe('pairwise', () => {
  it('orders a group by who is better, with a mean of a half', async () => {
    const { judge, term } = make();
    const outcomes = await scoreChunk(await term, groupOf([14, 11, 17, 12, 16, 13, 18, 15]));
    const values = outcomes.map(valueOf);
    expect(values.reduce((sum, value) => sum + value, 0) / 8).toBeCloseTo(0.5, 12);
    expect(values.indexOf(Math.max(...values))).toBe(6);
    expect(values.indexOf(Math.min(...values))).toBe(1);
    // Three rounds of four meetings, each in both orders.
    expect(judge.asked).toHaveLength(24);
    expect(outcomes[0].parts).toMatchObject({
      'pairwise/meetings': 3,
      'pairwise/contradicted': 0,
      'pairwise/first_shown_wins': 0.5,
    });
    expect(outcomes[0].parts['pairwise/error']).toBeGreaterThan(0);
  });

  it('shows instruction, source and the two edits, and names a question by its answers', async () => {
    const { judge, term } = make();
    await scoreChunk(await term, groupOf([11, 12]));
    expect(judge.asked.map(({ key }) => key).sort()).toEqual(['3/1/0/pairwise_1', '3/1/1/pairwise_0']);
    const query = judge.asked.find(({ key }) => key === '3/1/1/pairwise_0');
    const [text, ...shown] = query?.messages[0].parts ?? [];
    expect(text).toMatch(/\nInstruction: write "STOP" on the red sign$/);
    expect(shown.map((part) => (typeof part === 'string' ? part : part.id))).toEqual(
      [1, 12, 11].map((seed) => judgeImage(imageOf(seed), '').id),
    );
    expect(query).toMatchObject({ temperature: 0, format: { name: 'two_scores' } });
  });

  it('makes equal images one player, which is never compared with itself', async () => {
    const { judge, term } = make();
    const values = (await scoreChunk(await term, groupOf([11, 12, 11, 11]))).map(valueOf);
    expect(judge.asked).toHaveLength(2);
    expect(values[0]).toBe(values[2]);
    expect(values[1]).toBeGreaterThan(values[0]);
    expect((values[0] * 3 + values[1]) / 4).toBeCloseTo(0.5, 12);
    const same = make();
    expect((await scoreChunk(await same.term, groupOf([11, 11, 11]))).map(valueOf)).toEqual([0.5, 0.5, 0.5]);
    expect(same.judge.asked).toEqual([]);
  });

  it('lets every image win against an answer without one', async () => {
    const { judge, term } = make();
    const [only, none] = await scoreChunk(await term, groupOf([11, null]));
    expect(none).toMatchObject({ kind: 'zero_by_rule' });
    expect(valueOf(only)).toBe(1);
    expect(judge.asked).toEqual([]);
    const three = await scoreChunk(await make().term, groupOf([11, null, 12]));
    expect((valueOf(three[0]) + valueOf(three[2])) / 2).toBeCloseTo(0.75, 12);
  });

  it('gives a tie where both orders contradict each other, and counts that', async () => {
    const { term } = make({}, () => '{"score": [9, 2], "reasoning": "the first"}');
    const outcomes = await scoreChunk(await term, groupOf([11, 12, 13, 14]));
    expect(outcomes.map(valueOf)).toEqual([0.5, 0.5, 0.5, 0.5].map((half) => expect.closeTo(half, 12) as number));
    expect(outcomes[1].parts).toMatchObject({ 'pairwise/contradicted': 1, 'pairwise/first_shown_wins': 1 });
  });

  it('leaves an answer unscored that no meeting decided, and never counts such a meeting', async () => {
    const { term } = make({}, (first, second) =>
      first === 13 || second === 13
        ? null
        : JSON.stringify({ score: [first > second ? 8 : 3, second > first ? 8 : 3] }),
    );
    const outcomes = await scoreChunk(await term, groupOf([11, 12, 13, 14]));
    expect(outcomes[2]).toMatchObject({ kind: 'unscored', reason: 'timeout' });
    expect(outcomes.filter(({ kind }) => kind === 'scored').length).toBeGreaterThanOrEqual(2);
    const half = make({}, (first, second, question) =>
      question === 'pairwise_1' ? 'no idea' : JSON.stringify({ score: [first, second].map((seed) => seed % 10) }),
    );
    expect(await scoreChunk(await half.term, groupOf([11, 12]))).toMatchObject([
      { kind: 'unscored', reason: 'unparsable' },
      { kind: 'unscored', reason: 'unparsable' },
    ]);
  });

  it('asks the same questions for the same answers of the judge, and others for another group', async () => {
    const asked = async (key: string): Promise<string[]> => {
      const { judge, term } = make();
      await scoreChunk(await term, groupOf([14, 11, 17, 12, 16, 13, 18, 15], key));
      return judge.asked.map((query) => query.key.replace(key, ''));
    };
    expect(await asked('3/1')).toEqual(await asked('3/1'));
    expect(await asked('3/1')).not.toEqual(await asked('3/2'));
  });

  it('puts an answer that stands alone beside the source, or the label', async () => {
    const { judge, term } = make();
    const better = await (await term).score(wholeItem({ key: 'validation/0/s/sampled/4' }));
    expect(better).toMatchObject({ kind: 'scored', value: 1 });
    expect(judge.asked.map(({ key }) => key)).toEqual([
      'validation/0/s/sampled/4/pairwise_before',
      'validation/0/s/sampled/4/pairwise_after',
    ]);
    expect(judge.asked.map(seedsOf)).toEqual([
      [2, 1],
      [1, 2],
    ]);
    const label = make({ against: 'label' });
    expect(await (await label.term).score(wholeItem())).toMatchObject({ kind: 'scored', value: 0 });
    expect(label.judge.asked.map(seedsOf)).toEqual([
      [2, 3],
      [3, 2],
    ]);
    const copy = make();
    expect(await (await copy.term).score(wholeItem({ edited: imageOf(1) }))).toMatchObject({ value: 0.5 });
    expect(copy.judge.asked).toEqual([]);
  });

  it('is unscored if all others of its group are lost', async () => {
    const { judge, term } = make();
    const [one] = groupOf([11]);
    const group: AnswerGroup = { answers: [one], ruledOut: 0 };
    expect(await (await term).score(one, undefined, { group })).toMatchObject({ kind: 'unscored' });
    expect(judge.asked).toEqual([]);
  });

  it('counts as beaten what the reward rules out', async () => {
    const { term } = make();
    const [one, other] = groupOf([11, 12]);
    const group: AnswerGroup = { answers: [one, other], ruledOut: 2 };
    const scored = await Promise.all([one, other].map(async (item) => (await term).score(item, undefined, { group })));
    const [low, high] = scored.map(valueOf);
    expect((low + high) / 2).toBeCloseTo(2.5 / 3, 12);
  });

  it('has the criteria of a file, and the model that it names', async () => {
    const file = join(folder, 'criteria.txt');
    writeFileSync(file, 'Prefer the darker edit.\n');
    const { judge, term } = make({ criteria: file });
    await scoreChunk(await term, groupOf([11, 12]));
    expect(judge.asked[0].messages[0].parts[0]).toMatch(/Prefer the darker edit\.\n\nGive each edit a grade/);
    const models: (string | undefined)[] = [];
    const services = testServices(judge);
    const settings = z.strictObject(pairwise.fields).parse({ model: 'other' });
    await pairwise.create(settings, { ...services, judge: (model) => (models.push(model), services.judge(model)) });
    expect(models).toEqual(['other']);
  });

  it('explains how many questions it asks', () => {
    const questions = (fields: object, answers: number): number | undefined =>
      pairwise.questions?.(z.strictObject(pairwise.fields).parse(fields), answers);
    expect(questions({}, 8)).toBe(24);
    expect(questions({}, 1)).toBe(2);
    expect(questions({}, 5)).toBe(12);
    expect(questions({ rounds: 2 }, 8)).toBe(16);
    expect(questions({ rounds: 'all' }, 8)).toBe(56);
    expect(questions({ rounds: 'all' }, 5)).toBe(20);
  });
});
