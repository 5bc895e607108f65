/** Judges that people use, from the request to the reward: the JSON that a server gets, and the value of its replies. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createReward } from '../../../src/rewards/score/combined.js';
import { scoreChunk } from '../../../src/rewards/score/iteration.js';
import { rewardSettingsSchema } from '../../../src/rewards/score/settings.js';
import type { JudgeItem } from '../../../src/rewards/score/types.js';
import { editscore } from '../../../src/rewards/terms/editscore.js';
import { editR1 } from '../../../src/rewards/terms/edit_r1.js';
import { graded as gradedTerm } from '../../../src/rewards/terms/graded.js';
import { pvcJudge } from '../../../src/rewards/terms/pvc_judge.js';
import { rationalRewardsEdit } from '../../../src/rewards/terms/rational_rewards_edit.js';
import { unifiedRewardEdit } from '../../../src/rewards/terms/unified_reward_edit.js';
import { viescorePublished } from '../../../src/rewards/terms/viescore_published.js';
import { testFolder } from '../../support/folder.js';
import { numberedImage, numberOf, stubModel, type Behave, type StubRequest } from '../judge/stub_judge.js';
import { stubPlace } from '../judge/stub_place.js';
import { termContract } from './term_contract.js';
import { replyingJudge, testServices } from './term_services.js';

const folder = testFolder('preset prompts');
const { serve, connect } = stubPlace();

function prompt(name: string, text: string): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

/** Files in the shape of the published ones, in our words. */
const files = {
  sc: prompt('sc.txt', '{source}{edited}Grade the edit.\n\nThe edit was: {instruction}\n'),
  pq: prompt('pq.txt', '{edited}Grade the image.\n'),
  report: prompt(
    'report.txt',
    'You report.\n===\nRequested: {instruction}\n1. Source {source}\n2. Edit {edited}\n\nReport.',
  ),
  pair: prompt('pair.txt', 'You compare.\n===\nRequested: {instruction}\nSource:{source}\nA:{first}\nB:{second}'),
};

const item = (number: number, changes: Partial<JudgeItem> = {}): JudgeItem => ({
  key: `0/0/${number}`,
  instruction: 'paint the\nball red',
  source: numberedImage(200),
  edited: numberedImage(number),
  truth: null,
  finished: true,
  ...changes,
});

async function rewardOf(term: object, behave: Behave) {
  const stub = await serve(behave);
  const { client } = connect(stub, { maxAskAgain: 1 });
  const settings = rewardSettingsSchema.parse({ mode: null, terms: [{ weight: 1, ...term }] });
  return { stub, reward: await createReward(settings, testServices(client), true) };
}

/** The logged body with each image's number in place of its data. */
async function logged({ body }: StubRequest): Promise<unknown> {
  const { messages, ...sampling } = body as { messages: { role: string; content: unknown }[] };
  const shown = messages.map(async ({ role, content }) => {
    if (!Array.isArray(content)) return { role, content };
    const parts = (content as { type: string; text?: string; image_url?: { url: string } }[]).map(
      async ({ type, text, image_url: image }) =>
        image === undefined ? { type, text } : { type, image: await numberOf(image.url) },
    );
    return { role, content: await Promise.all(parts) };
  });
  return { ...sampling, messages: await Promise.all(shown) };
}

const scores = (first: number, second: number): ReturnType<Behave> => ({
  kind: 'text',
  text: `{\n"reasoning" : "It is red.",\n"score" : [${first}, ${second}],\n}`,
});
const common = { model: stubModel, n: 1, repetition_penalty: 1 };

describe('editscore', () => {
  const term = { name: 'editscore', prompt_sc: files.sc, prompt_pq: files.pq };

  it('asks as the published client does', async () => {
    const { stub, reward } = await rewardOf(term, () => scores(20, 15));
    await reward.score(item(5));
    const sampling = { ...common, temperature: 0.7, top_p: 0.9, top_k: 20, seed: 42, max_completion_tokens: 512 };
    const bodies = await Promise.all(stub.requests.map(logged));
    expect(bodies).toHaveLength(2);
    expect(bodies).toContainEqual({
      ...sampling,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image_url', image: 200 },
            { type: 'image_url', image: 5 },
            { type: 'text', text: 'Grade the edit.\n\nThe edit was: paint the ball red\n' },
          ],
        },
      ],
    });
    expect(bodies).toContainEqual({
      ...sampling,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image_url', image: 5 },
            { type: 'text', text: 'Grade the image.\n' },
          ],
        },
      ],
    });
  });

  it('is the mean of the passes, each with its own seed', async () => {
    const { stub, reward } = await rewardOf({ ...term, repeats: 2 }, ({ images, body }) => {
      const isSecond = body['seed'] === 43;
      return images.length === 2 ? scores(isSecond ? 25 : 20, 10) : scores(isSecond ? 10 : 25, 22.5);
    });
    const outcome = await reward.score(item(5));
    expect(stub.requests.map(({ body }) => body['seed']).sort()).toEqual([42, 42, 43, 43]);
    // The lower of each pair, on a scale of 10: sqrt(4 * 9) and sqrt(4 * 4).
    expect(outcome).toMatchObject({
      kind: 'scored',
      value: expect.closeTo(5, 12) as number,
      normalised: expect.closeTo(0.5, 12) as number,
      parts: {
        'editscore/edit_success': 9,
        'editscore/overedit': 4,
        'editscore/semantic_consistency': 4,
        'editscore/naturalness': 7,
        'editscore/artifacts': 9,
        'editscore/perceptual_quality': 6.5,
        'editscore/overall': expect.closeTo(5, 12) as number,
      },
    });
  });

  it('is unscored if one reply of one pass is unreadable, and asks it again with a seed of its own', async () => {
    const { stub, reward } = await rewardOf({ ...term, repeats: 2 }, ({ images, body }) =>
      images.length === 1 && Number(body['seed']) % 2 === 1 ? { kind: 'text', text: 'about 20' } : scores(20, 10),
    );
    expect(await reward.score(item(5))).toMatchObject({ kind: 'unscored', reason: 'unparsable' });
    expect(stub.requests.map(({ body }) => body['seed']).sort()).toEqual([42, 42, 43, 43, 45]);
  });

  it.each([
    [26, 'out_of_range'],
    [-1, 'out_of_range'],
  ])('is unscored for %d', async (score, reason) => {
    const { reward } = await rewardOf(term, () => scores(score, 10));
    expect(await reward.score(item(5))).toMatchObject({ kind: 'unscored', reason });
  });

  it('replays the passes that are stored', async () => {
    const stub = await serve(() => scores(20, 15));
    const { client, store } = connect(stub);
    const settings = rewardSettingsSchema.parse({ mode: null, terms: [{ weight: 1, ...term, repeats: 4 }] });
    const reward = await createReward(settings, testServices(client), true);
    const first = await reward.score(item(5));
    expect(await reward.score(item(5))).toEqual(first);
    expect(stub.requests).toHaveLength(8);
    expect(store.all().map(({ key }) => key)).toContain('0/0/5/editscore_pq_4');
  });

  it('says where its prompts come from', () => {
    const { prompt_sc: field } = editscore.fields;
    expect(field.meta()).toMatchObject({
      allowed: expect.stringContaining('scripts/judge_prompts.py editscore CLONE FOLDER') as string,
    });
    expect(
      z
        .strictObject(editscore.fields)
        .safeParse({})
        .error?.issues.map(({ path }) => path),
    ).toEqual([['prompt_sc'], ['prompt_pq']]);
  });
});

describe('unified_reward_edit', () => {
  it('asks greedily, and combines its grades', async () => {
    const { stub, reward } = await rewardOf(
      { name: 'unified_reward_edit', prompt_sc: files.sc, prompt_pq: files.pq },
      ({ images }) => (images.length === 2 ? scores(25, 10) : scores(22.5, 25)),
    );
    const outcome = await reward.score(item(5));
    const sampling = { ...common, temperature: 0, top_p: 1, top_k: -1, seed: 42, max_completion_tokens: 4096 };
    for (const body of await Promise.all(stub.requests.map(logged))) expect(body).toMatchObject(sampling);
    expect(outcome).toMatchObject({ kind: 'scored', value: expect.closeTo(6, 12) as number });
  });
});

const report = (...[text, image, quality, rendering]: readonly string[]): string => `# Detailed Judgement
1. Text Faithfulness:
## Justification: fine
## Score: ${text}
2. Image Faithfulness:
## Justification: fine
## Score: ${image}
3. Physical and Visual Quality:
## Justification: fine
## Score: ${quality}
4. Text Rendering:
## Justification: fine
## Score: ${rendering}
# Summary: fine`;

describe('rational_rewards_edit', () => {
  const term = { name: 'rational_rewards_edit', prompt: files.report };
  const replying = (...grades: readonly string[]) => rewardOf(term, () => ({ kind: 'text', text: report(...grades) }));

  it('asks as the published client does', async () => {
    const { stub, reward } = await replying('4', '4', '4', 'N/A');
    await reward.score(item(5));
    expect(await Promise.all(stub.requests.map(logged))).toEqual([
      {
        ...common,
        temperature: 0.1,
        top_p: 1,
        top_k: -1,
        seed: 42,
        max_completion_tokens: 2048,
        messages: [
          { role: 'system', content: 'You report.' },
          {
            role: 'user',
            content: [
              { type: 'text', text: 'Requested: paint the ball red\n1. Source ' },
              { type: 'image_url', image: 200 },
              { type: 'text', text: '\n2. Edit ' },
              { type: 'image_url', image: 5 },
              { type: 'text', text: '\n\nReport.' },
            ],
          },
        ],
      },
    ]);
  });

  it('is the mean of the aspects that apply', async () => {
    const three = await (await replying('3.5', '4', '1.5', 'N/A')).reward.score(item(5));
    expect(three).toMatchObject({ kind: 'scored', value: expect.closeTo(2 / 3, 12) as number });
    expect(three.parts).toEqual({
      'rational_rewards_edit/text_faithfulness': 3.5,
      'rational_rewards_edit/image_faithfulness': 4,
      'rational_rewards_edit/physical_quality': 1.5,
      'rational_rewards_edit/overall': expect.closeTo(2 / 3, 12) as number,
    });
    const four = await (await replying('3.5', '4', '1.5', '1')).reward.score(item(5));
    expect(four).toMatchObject({ kind: 'scored', value: 0.5, parts: { 'rational_rewards_edit/text_rendering': 1 } });
    expect(await (await replying('1', '1', '1', 'N/A')).reward.score(item(5))).toMatchObject({ value: 0 });
  });

  it('is unscored where upstream would give a number', async () => {
    for (const grades of [
      ['4.5', '4', '4', '4'],
      ['0', '4', '4', '4'],
      ['4', 'N/A', '4', '4'],
      ['4', '4', '', '4'],
    ]) {
      expect(await (await replying(...grades)).reward.score(item(5)), grades.join()).toMatchObject({
        kind: 'unscored',
      });
    }
  });
});

describe('pvc_judge', () => {
  /** The higher number wins, and equal tens tie. */
  const comparing: Behave = async ({ images }) => {
    const [first, second] = await Promise.all(images.slice(1).map(numberOf));
    const winner = Math.floor(first / 10) === Math.floor(second / 10) ? 'Tie' : first > second ? 'Image A' : 'Image B';
    return { kind: 'text', text: `\`\`\`json\n{\n    "winner": "${winner}"\n}\n\`\`\`` };
  };
  const term = { name: 'pvc_judge', prompt: files.pair };

  it('asks as the published client does, in both orders', async () => {
    const { stub, reward } = await rewardOf(term, comparing);
    await scoreChunk(reward, [item(11), item(25)]);
    const bodies = await Promise.all(stub.requests.map(logged));
    expect(bodies).toHaveLength(2);
    expect(bodies).toContainEqual({
      ...common,
      temperature: 0.7,
      top_p: 1,
      top_k: -1,
      seed: 42,
      max_completion_tokens: 2048,
      messages: [
        { role: 'system', content: 'You compare.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Requested: paint the ball red\nSource:' },
            { type: 'image_url', image: 200 },
            { type: 'text', text: '\nA:' },
            { type: 'image_url', image: 25 },
            { type: 'text', text: '\nB:' },
            { type: 'image_url', image: 11 },
          ],
        },
      ],
    });
  });

  it('orders a group, with ties in between', async () => {
    const { reward } = await rewardOf({ ...term, rounds: 'all' }, comparing);
    const outcomes = await scoreChunk(
      reward,
      [11, 25, 24, 37].map((number) => item(number)),
    );
    const values = outcomes.map((outcome) => (outcome.kind === 'scored' ? outcome.value : NaN));
    expect(values[0]).toBeLessThan(values[1]);
    expect(values[1]).toBeCloseTo(values[2], 12);
    expect(values[2]).toBeLessThan(values[3]);
    expect(outcomes[3].parts).toMatchObject({ 'pvc_judge/meetings': 3, 'pvc_judge/first_shown_wins': 0.5 });
    expect(Object.keys(outcomes[3].parts).every((part) => part.startsWith('pvc_judge/'))).toBe(true);
  });

  it('leaves answers unscored if the judge names no winner', async () => {
    const { reward } = await rewardOf(term, () => ({ kind: 'text', text: '{"winner": "Image C"}' }));
    expect(await scoreChunk(reward, [item(11), item(25)])).toMatchObject([
      { kind: 'unscored', reason: 'unparsable' },
      { kind: 'unscored', reason: 'unparsable' },
    ]);
  });
});

describe('viescore_published', () => {
  it('asks as the published client does, and is the lower grade of each question', async () => {
    const { stub, reward } = await rewardOf(
      { name: 'viescore_published', prompt_sc: files.sc, prompt_pq: files.pq },
      ({ images }) => (images.length === 2 ? scores(9, 4) : scores(10, 9)),
    );
    expect(await reward.score(item(5))).toMatchObject({ kind: 'scored', value: expect.closeTo(6, 12) as number });
    const sampling = { ...common, temperature: 1, top_p: 1, top_k: -1, seed: 42, max_completion_tokens: 1400 };
    for (const body of await Promise.all(stub.requests.map(logged))) expect(body).toMatchObject(sampling);
  });

  it('is unscored above its scale', async () => {
    const { reward } = await rewardOf({ name: 'viescore_published', prompt_sc: files.sc, prompt_pq: files.pq }, () =>
      scores(11, 4),
    );
    expect(await reward.score(item(5))).toMatchObject({ kind: 'unscored', reason: 'out_of_range' });
  });
});

describe('edit_r1', () => {
  it('asks for one token with its alternatives, the images first', async () => {
    const { stub, reward } = await rewardOf({ name: 'edit_r1', prompt: files.sc }, () => ({ kind: 'text', text: '4' }));
    // The stub gives no log-probabilities.
    expect(await reward.score(item(5))).toMatchObject({ kind: 'unscored' });
    expect(await Promise.all(stub.requests.map(logged))).toEqual([
      {
        ...common,
        temperature: 0,
        top_p: 1,
        top_k: -1,
        seed: 42,
        max_completion_tokens: 1,
        logprobs: true,
        top_logprobs: 20,
        messages: [
          {
            role: 'user',
            content: [
              { type: 'image_url', image: 200 },
              { type: 'image_url', image: 5 },
              { type: 'text', text: 'Grade the edit.\n\nThe edit was: paint the ball red\n' },
            ],
          },
        ],
      },
    ]);
  });

  const replying = (shares: Readonly<Record<string, number>>) => {
    const alternatives = Object.entries(shares).map(([token, share]) => [token, Math.log(share)]);
    const judge = replyingJudge(() => JSON.stringify(alternatives));
    return editR1.create({ prompt: files.sc, model: null }, testServices(judge));
  };

  it('is the mean over the digits, as a softmax over their logits alone gives it', async () => {
    const outcome = await (await replying({ 5: 0.5, 3: 0.3, The: 0.2 })).score(item(5));
    const softmax = (5 * 0.5 + 3 * 0.3) / (0.5 + 0.3);
    expect(outcome).toMatchObject({ kind: 'scored', value: expect.closeTo(softmax / 5, 12) as number });
    expect(outcome.parts).toMatchObject({ 'edit_r1/coverage': expect.closeTo(0.8, 12) as number });
  });

  it('is unscored if the judge was about to answer something else', async () => {
    expect(await (await replying({ 5: 0.3, The: 0.7 })).score(item(5))).toMatchObject({ kind: 'unscored' });
  });
});

describe('graded', () => {
  const term = { name: 'graded', prompt: files.sc };
  const replying = (fields: object, ...grades: readonly number[]) =>
    rewardOf({ ...term, ...fields }, () => ({ kind: 'text', text: JSON.stringify({ reasoning: 'x', score: grades }) }));

  it.each<[object, number[], number]>([
    [{}, [7], 0.7],
    [{ scale: [1, 5] }, [5], 1],
    [{ scale: [1, 5] }, [1], 0],
    [{ scale: [-2, 2] }, [1], 0.75],
    [{ scale: [0, 100] }, [12.5], 0.125],
    [{ scale: [1, 5], scores: 2 }, [5, 2], 0.625],
    [{ scale: [1, 5], scores: 2, combine: 'min' }, [5, 2], 0.25],
  ])('%j of %j is %d', async (fields, grades, value) => {
    const outcome = await (await replying(fields, ...grades)).reward.score(item(5));
    expect(outcome).toMatchObject({ kind: 'scored', value, normalised: value });
  });

  it('requests its form, and can leave it out', async () => {
    const { stub, reward } = await replying({ scale: [1, 5], scores: 2 }, 4, 4);
    await reward.score(item(5));
    expect(stub.requests[0].body).toMatchObject({
      response_format: {
        type: 'json_schema',
        json_schema: {
          schema: { properties: { score: { minItems: 2, maxItems: 2, items: { minimum: 1, maximum: 5 } } } },
        },
      },
    });
    const plain = await replying({ structured: false }, 4);
    await plain.reward.score(item(5));
    expect(plain.stub.requests[0].body).not.toHaveProperty('response_format');
  });

  it.each([
    [{ scale: [1, 5] }, [0], 'out_of_range'],
    [{ scale: [1, 5] }, [6], 'out_of_range'],
    [{ scores: 2 }, [5], 'unparsable'],
  ])('%j is unscored for %j', async (fields, grades, reason) => {
    expect(await (await replying(fields, ...grades)).reward.score(item(5))).toMatchObject({ kind: 'unscored', reason });
  });

  it('is the mean of its passes', async () => {
    const { stub, reward } = await rewardOf({ ...term, repeats: 2, temperature: 0.7 }, ({ body }) => ({
      kind: 'text',
      text: JSON.stringify({ reasoning: 'x', score: [body['seed'] === 42 ? 4 : 8] }),
    }));
    expect(await reward.score(item(5))).toMatchObject({ value: expect.closeTo(0.6, 12) as number });
    expect(stub.requests).toHaveLength(2);
  });

  it('rejects a scale that is upside down', () => {
    expect(gradedTerm.conflict?.({ scale: [5, 1] } as never)).toMatchObject({ field: 'scale' });
  });
});

const graded = replyingJudge(() => '{"reasoning": "x", "score": [9, 5]}');
for (const kind of [editscore, unifiedRewardEdit, viescorePublished]) {
  termContract(kind.name, () =>
    kind.create({ prompt_sc: files.sc, prompt_pq: files.pq, repeats: 2, model: null }, testServices(graded)),
  );
}
termContract('rational_rewards_edit', () =>
  rationalRewardsEdit.create(
    { prompt: files.report, model: null },
    testServices(replyingJudge(() => report('4', '3', '2', 'N/A'))),
  ),
);
termContract('pvc_judge', () =>
  pvcJudge.create(
    { prompt: files.pair, model: null, rounds: null, against: 'source' },
    testServices(replyingJudge(() => '{"winner": "Image A"}')),
  ),
);
termContract('edit_r1', () =>
  editR1.create({ prompt: files.sc, model: null }, testServices(replyingJudge(() => '[["4",-0.1]]'))),
);
termContract('graded', () =>
  gradedTerm.create(
    {
      prompt: files.sc,
      scale: [0, 10],
      scores: 2,
      combine: 'mean',
      repeats: 1,
      temperature: 0,
      structured: true,
      max_reply_tokens: 400,
      model: null,
    },
    testServices(graded),
  ),
);
