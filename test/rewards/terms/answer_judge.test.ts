import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { ConfigError } from '../../../src/core/errors.js';
import { shownToJudge } from '../../../src/rewards/score/choice.js';
import type { RewardChoice } from '../../../src/rewards/score/settings.js';
import { answerJudge } from '../../../src/rewards/terms/answer_judge.js';
import { testFolder } from '../../support/folder.js';
import { imageOf, termContract, wholeItem } from './term_contract.js';
import { replyingJudge, testServices } from './term_services.js';

const folder = testFolder('answer-judge');
const defaults = { criteria: null, max_reply_tokens: 400 };
const images = { source: null, edited: null, truth: null };

function asked(reply: string | null = '{"score": [7], "reasoning": "x"}') {
  const judge = replyingJudge(() => reply);
  const text = (): string => judge.asked[0].messages[0].parts[0] as string;
  return {
    judge,
    text,
    create: (fields: object = {}) => answerJudge.create({ ...defaults, ...fields }, testServices(judge)),
  };
}

termContract('answer_judge', () => asked().create());

describe('answer_judge', () => {
  it('shows question, label and answer in words, what answers share first', async () => {
    const { judge, text, create } = asked();
    const term = await create();
    const item = wholeItem({
      instruction: 'Why "so"?',
      answer: 'Because.\nReference: "mine"',
      expected: 'It is.',
      ...images,
    });
    expect(await term.score(item)).toEqual({
      kind: 'scored',
      value: 7,
      normalised: 0.7,
      parts: { 'answer_judge/grade': 7 },
    });
    expect(text()).toMatch(
      /\nQuestion: "Why \\"so\\"\?"\nReference: "It is\."\nAnswer: "Because\.\\nReference: \\"mine\\""$/,
    );
    expect(judge.asked[0]).toMatchObject({ key: '4/2/1/answer_judge', temperature: 0, maxCompletionTokens: 400 });
    expect(judge.asked[0].messages.flatMap(({ parts }) => parts.map((part) => typeof part))).toEqual(['string']);
  });

  it('does without a label', async () => {
    const { text, create } = asked();
    const item = wholeItem({ answer: 'Because.', ...images });
    delete (item as { expected?: string }).expected;
    await (await create()).score(item);
    expect(text()).not.toContain('\nReference:');
  });

  it('asks no one about no answer', async () => {
    const { judge, create } = asked();
    expect(await (await create()).score(wholeItem({ answer: ' \n', ...images }))).toMatchObject({
      kind: 'scored',
      value: 0,
    });
    expect(judge.asked).toEqual([]);
  });

  it.each([
    [null, 'timeout'],
    ['I like it.', 'unparsable'],
    ['{"score": [11], "reasoning": "x"}', 'out_of_range'],
    ['{"score": [3, 4], "reasoning": "x"}', 'unparsable'],
  ])('is unscored after %j', async (reply, reason) => {
    const { create } = asked(reply);
    const found = await (await create()).score(wholeItem(images));
    expect(found).toMatchObject({ kind: 'unscored', reason });
  });

  it('grades by criteria of one\u2019s own', async () => {
    const { text, create } = asked();
    const criteria = join(folder, 'criteria.txt');
    writeFileSync(criteria, 'Rhymes earn everything.\n');
    await (await create({ criteria })).score(wholeItem(images));
    expect(text()).toContain('\n\nRhymes earn everything.\n\n');
    expect(text()).not.toContain('right, complete');
    writeFileSync(criteria, ' \n');
    await expect(create({ criteria })).rejects.toThrow(/the file of criteria '.*' is empty/);
    await expect(create({ criteria: join(folder, 'none') })).rejects.toThrow(ConfigError);
  });
});

describe('a question about images', () => {
  const idsOf = (query: JudgeQuery): string[] =>
    query.messages[0].parts.map((part) => (typeof part === 'string' ? 'text' : part.id));
  const id = (seed: number): string => judgeImage(imageOf(seed), '').id;

  it('shows those that the policy saw, before the question', async () => {
    const { judge, create } = asked();
    const term = await create();
    await term.score(wholeItem({ ...images, seen: [imageOf(5), imageOf(6)] }));
    expect(idsOf(judge.asked[0])).toEqual(['text', id(5), id(6), 'text']);
    const [task, , , graded] = judge.asked[0].messages[0].parts;
    expect(task).toMatch(/\n\nThe question is about the 2 images that follow, in their order\.$/);
    expect(graded).toMatch(/^Question: ".*"\nReference: ".*"\nAnswer: ".*"$/);
  });

  it('shows the sources of an edit', async () => {
    const { judge, create } = asked();
    await (await create()).score(wholeItem({ beside: [imageOf(7)] }));
    expect(idsOf(judge.asked[0])).toEqual(['text', id(1), id(7), 'text']);
  });

  it('leaves an answer unscored if an image cannot be shown', async () => {
    const { judge, create } = asked();
    const item = wholeItem({ ...images, seen: [imageOf(5, 10_000, 1)] });
    expect(await (await create()).score(item)).toMatchObject({ kind: 'unscored', reason: 'bad_request' });
    expect(judge.asked).toEqual([]);
  });
});

describe('what a judge is shown', () => {
  const shown = (terms: readonly object[], mode: string | null = null, sources?: number) =>
    shownToJudge({ mode, terms, also_compute: [] } as unknown as RewardChoice, sources);
  const term = (name: string) => ({ name, weight: 0.5, ...(name === 'align_quality' ? { endpoint: null } : {}) });
  it('is words if all who ask it read words', () => {
    expect(shown([], 'answer_judge')).toBe(0);
    expect(shown([term('answer_judge'), term('word_overlap')])).toBe(0);
    expect(shown([term('answer_judge'), term('align_quality')])).toBe(2);
    expect(shown([], 'viescore')).toBe(2);
    expect(shown([], 'word_overlap')).toBe(2);
  });

  it('is all images of an edit where a term shows them, and the edit', () => {
    expect(shown([], 'align_quality', 3)).toBe(4);
    expect(shown([term('viescore'), term('align_quality')], null, 3)).toBe(4);
    expect(shown([term('pairwise'), term('align_quality')], null, 2)).toBe(3);
    expect(shown([], 'viescore', 3)).toBe(2);
    expect(shown([], 'answer_judge', 3)).toBe(3);
    expect(shown([term('answer_judge'), term('viescore')], null, 3)).toBe(3);
    expect(shown([term('answer_judge'), term('viescore')], null, 1)).toBe(2);
  });
});
