/** The tokens of judgements: from what servers say of each reply to what is recorded of a question. */
import { afterEach, describe, expect, it } from 'vitest';
import { JudgeClient } from '../../../src/rewards/judge/client.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { MemoryJudgementStore } from './memory_store.js';
import type { Judgement } from '../../../src/rewards/score/types.js';
import {
  completion,
  fastClock,
  numberedImage,
  openAiError,
  startStubJudge,
  stubModel,
  type Behave,
  type Behaviour,
} from './stub_judge.js';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

function said(text: string, usage: object | null, finishReason = 'stop'): Behaviour {
  return { kind: 'json', body: { ...(completion(text, finishReason) as object), usage } };
}

const usage = (prompt: number, completed: number) => ({ prompt_tokens: prompt, completion_tokens: completed });

function query(number = 1): JudgeQuery {
  return {
    key: `0/${number}/0/question`,
    messages: [
      {
        role: 'user',
        parts: ['How good?', judgeImage(numberedImage(number), 'a'), judgeImage(numberedImage(9), 'b')],
      },
    ],
    format: null,
    temperature: 0,
    maxCompletionTokens: 10,
    parse: (text) =>
      text === 'good' ? { ok: true, scores: [7] } : { ok: false, problem: 'unparsable', detail: 'no score' },
  };
}

function connect(url: string): JudgeClient {
  const store = new MemoryJudgementStore();
  const clock = fastClock(100);
  const client = new JudgeClient({ endpoints: [url], model: stubModel, store, clock, random: () => 0.5 });
  closing.push(() => client.close());
  return client;
}

async function judged(behave: Behave): Promise<Judgement> {
  const stub = await startStubJudge(behave);
  closing.push(stub.close);
  return connect(stub.url).ask(query());
}

describe('the tokens of a judgement', () => {
  it('are those of its reply', async () => {
    expect((await judged(() => said('good', usage(812, 40)))).tokens).toEqual({ prompt: 812, completion: 40 });
  });

  it('add up over all requests that got a reply: asked again, broken off, cut off', async () => {
    const replies: readonly Behaviour[] = [
      said('', usage(1000, 1), 'abort'),
      openAiError(500, 'oh no'),
      said('bad', usage(100, 2)),
      said('good', usage(10, 3)),
    ];
    const judgement = await judged(({ asked }) => replies[asked]);
    expect(judgement).toMatchObject({ problem: null, attempts: 4, tokens: { prompt: 1110, completion: 6 } });
  });

  it('are kept where the replies came to no score, and absent where nothing came', async () => {
    expect(await judged(() => said('bad', usage(100, 2)))).toMatchObject({
      problem: 'unparsable',
      tokens: { prompt: 300, completion: 6 },
    });
    expect(await judged(() => openAiError(500, 'oh no'))).not.toHaveProperty('tokens');
  });

  it.each([
    ['no usage', null],
    ['usage without counts', {}],
    ['a count that is none', { prompt_tokens: -5, completion_tokens: 'many' }],
  ])('are absent where the server gives %s, which is no fault', async (_, found) => {
    const judgement = await judged(() => said('good', found));
    expect(judgement.problem).toBeNull();
    expect(judgement).not.toHaveProperty('tokens');
  });
});
