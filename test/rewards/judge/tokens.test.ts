/** The tokens of judgements: from what servers say of each reply to what is recorded of a question. */
import { describe, expect, it } from 'vitest';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import type { Judgement } from '../../../src/rewards/score/types.js';
import { completion, numberedImage, openAiError, type Behave, type Behaviour } from './stub_judge.js';
import { stubPlace } from './stub_place.js';

const { serve, connect } = stubPlace();

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

async function judged(behave: Behave): Promise<Judgement> {
  return connect(await serve(behave)).client.ask(query());
}

describe('the tokens of a judgement', () => {
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

  it('are kept where the replies came to no score, and absent if nothing came', async () => {
    expect(await judged(() => said('bad', usage(100, 2)))).toMatchObject({
      problem: 'unparsable',
      tokens: { prompt: 300, completion: 6 },
    });
    expect(await judged(() => openAiError(500, 'oh no'))).not.toHaveProperty('tokens');
  });
});
