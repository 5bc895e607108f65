/** What the judge client changes in a question before it asks again, what it takes for an answer, and what it keeps to itself. */
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../../src/core/errors.js';
import { parseExpectedDigit } from '../../../src/rewards/judge/first_token.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import { parseScores } from '../../../src/rewards/judge/parse.js';
import { waitUntilReady } from '../../../src/rewards/judge/readiness.js';
import type { Behaviour } from './stub_judge.js';
import { stubPlace } from './stub_place.js';
import { completion, numberedImage, openAiError, scoresText, stubModel } from './stub_judge.js';

const { serve, connect } = stubPlace();

function query(side = 64, changes: Partial<JudgeQuery> = {}): JudgeQuery {
  const shown = [1, 2].map((number) => judgeImage(numberedImage(number, side), 'test'));
  return {
    key: '0/1/0/test',
    messages: [{ role: 'user', parts: ['Grade this.', ...shown] }],
    format: null,
    temperature: 0,
    maxCompletionTokens: 400,
    parse: (text, cutOff) => parseScores(text, 2, cutOff),
    ...changes,
  };
}

const flat = (message: string): Behaviour => ({
  kind: 'json',
  status: 400,
  body: { object: 'error', message, type: 'BadRequestError', param: null, code: 400 },
});

describe('a reply that was cut off', () => {
  it('gets twice the tokens, once', async () => {
    const stub = await serve(() => ({ kind: 'text', text: '{"reasoning": "well', finishReason: 'length' }));
    expect(await connect(stub).client.ask(query())).toMatchObject({ problem: 'truncated', attempts: 3 });
    expect(stub.requests.map(({ body }) => [body.max_completion_tokens, body.seed, body.temperature])).toEqual([
      [400, 42, 0],
      [800, 42, 0],
      [800, 43, 0.3],
    ]);
  });

  it('by white space without end is asked as another sample without the format, and no longer', async () => {
    const blank = { kind: 'text', text: `{\r\n   \n${' \n\t'.repeat(100)}`, finishReason: 'length' } as const;
    const format = { name: 'two', schema: { type: 'object' } };
    const stub = await serve(({ body }) => ('response_format' in body ? blank : scoresText(7, 8)));
    expect(await connect(stub).client.ask(query(64, { format }))).toMatchObject({ scores: [7, 8], attempts: 2 });
    const endless = await serve(() => blank);
    const judgement = await connect(endless).client.ask(query(64, { format }));
    expect(judgement).toMatchObject({ problem: 'truncated', attempts: 3 });
    expect(judgement.detail).toContain('compact JSON');
    for (const { requests } of [stub, endless]) {
      for (const [i, { body }] of requests.entries()) {
        expect(body).toMatchObject({ seed: 42 + i, max_completion_tokens: 400, temperature: i === 0 ? 0 : 0.3 });
        expect('response_format' in body).toBe(i === 0);
      }
    }
  });

  it('while the judge was thinking gets four times the tokens each time, and is sampled as at first', async () => {
    const stub = await serve(() => ({ kind: 'text', text: '<think>well', finishReason: 'length' }));
    expect(await connect(stub).client.ask(query())).toMatchObject({ problem: 'truncated', attempts: 3 });
    expect(stub.requests.map(({ body }) => [body.max_completion_tokens, body.seed, body.temperature])).toEqual([
      [400, 42, 0],
      [1600, 42, 0],
      [6400, 42, 0],
    ]);
  });

  it('does not count where its only number may lack a digit', async () => {
    const parse: JudgeQuery['parse'] = (text, cutOff) => parseScores(text, 1, cutOff);
    const stub = await serve(({ body }) => ({
      kind: 'text',
      text: body.max_completion_tokens === 400 ? '1' : '10',
      finishReason: body.max_completion_tokens === 400 ? 'length' : 'stop',
    }));
    expect(await connect(stub).client.ask(query(64, { parse }))).toMatchObject({ scores: [10], attempts: 2 });
  });

  it.each(['abort', 'error'])(
    'by the server itself (%s) is the server\u2019s failure, and asked the same again',
    async (reason) => {
      const stub = await serve(({ asked }) =>
        asked === 0 ? { kind: 'text', text: '{"score": [1, 1]}', finishReason: reason } : scoresText(7, 8),
      );
      expect(await connect(stub).client.ask(query())).toMatchObject({ scores: [7, 8], attempts: 2 });
      expect(stub.requests.map(({ body }) => body.seed)).toEqual([42, 42]);
    },
  );
});

describe('an answer from another model', () => {
  const from = (model: unknown): Behaviour => ({
    kind: 'json',
    body: { ...(completion('{"score": [7, 8]}', 'stop') as object), model },
  });

  it.each(['another-judge', 'stub-judge-mini', 'stub-judg', 'stub-judge-2'])('%s is none', async (model) => {
    const judgement = await connect(await serve(() => from(model))).client.ask(query());
    expect(judgement).toMatchObject({ problem: 'server_error', scores: [] });
    expect(judgement.detail).toContain(model);
  });

  it.each([
    'stub-judge',
    'Stub-Judge',
    '/models/stub-judge',
    'stub-judge-2024-08-06',
    'stub-judge-0613',
    'stub-judge-latest',
    'stub-judge-002',
    'some/stub-judge:free',
    '',
    null,
    7,
  ])('%j is the same one', async (model) => {
    expect(await connect(await serve(() => from(model))).client.ask(query())).toMatchObject({ scores: [7, 8] });
  });
});

describe('images that a server cannot take', () => {
  it.each([
    'absolute aspect ratio must be smaller than 200, got 250.0',
    'height:20 and width:20 must be larger than factor:28',
  ])('are not sent again, though it is a 500: %s', async (message) => {
    const stub = await serve(() => openAiError(500, message));
    expect(await connect(stub).client.ask(query())).toMatchObject({ problem: 'bad_request', attempts: 1 });
  });
});

describe('log-probabilities', () => {
  const digit = query(64, {
    maxCompletionTokens: 1,
    topLogprobs: 20,
    parse: (text) => parseExpectedDigit(text, 5),
  });
  const answering = (logprobs: unknown, content: string | null = '5'): Behaviour => ({
    kind: 'json',
    body: {
      model: stubModel,
      choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'length', logprobs }],
    },
  });
  const good = { content: [{ token: '5', logprob: -0.1, top_logprobs: [{ token: '5', logprob: -0.1, bytes: [53] }] }] };

  it('are asked for, kept and replayed', async () => {
    const stub = await serve(() => answering(good));
    const { client, store } = connect(stub);
    const judgement = await client.ask(digit);
    expect(judgement).toMatchObject({ problem: null, text: '[["5",-0.1]]', attempts: 1 });
    expect(judgement.scores).toEqual([5, expect.closeTo(Math.exp(-0.1), 12)]);
    expect(stub.requests[0].body).toMatchObject({ logprobs: true, top_logprobs: 20, max_completion_tokens: 1, n: 1 });
    expect(await client.ask(digit)).toEqual(judgement);
    expect(digit.parse(store.all()[0].text)).toEqual({ ok: true, scores: judgement.scores });
    expect(stub.requests).toHaveLength(1);
  });

  it.each<readonly [string, unknown]>([
    ['ignores them', null],
    ['sends none', { content: [] }],
  ])('are missed where a server %s, with what to do', async (_name, logprobs) => {
    const judgement = await connect(await serve(() => answering(logprobs))).client.ask(digit);
    expect(judgement).toMatchObject({ problem: 'bad_request', attempts: 1 });
    expect(judgement.detail).toMatch(/no log-probabilities.*vLLM/);
  });

  it('without a digit are not asked for again: another seed brings the same', async () => {
    const logprobs = { content: [{ token: 'The', top_logprobs: [{ token: 'The', logprob: -0.1 }] }] };
    const stub = await serve(() => answering(logprobs, 'The'));
    expect(await connect(stub).client.ask(digit)).toMatchObject({ problem: 'unparsable', attempts: 1 });
    expect(stub.requests).toHaveLength(1);
  });
});

describe('a judge that thinks', () => {
  const thinking = (message: object, finishReason: string): Behaviour => ({
    kind: 'json',
    body: { model: stubModel, choices: [{ index: 0, message, finish_reason: finishReason }] },
  });

  it('gets four times the tokens while it thinks, and twice once it has begun to answer', async () => {
    const stub = await serve(({ body }) =>
      body.max_completion_tokens === 400
        ? thinking({ content: null, reasoning_content: 'hm' }, 'length')
        : { kind: 'text', text: '{"reasoning": "well', finishReason: 'length' },
    );
    await connect(stub, { maxAskAgain: 3 }).client.ask(query());
    expect(stub.requests.map(({ body }) => body.max_completion_tokens)).toEqual([400, 1600, 1600, 1600]);
  });

  it('under a grammar that passes its whole answer off as thoughts is reported with advice to leave the format out', async () => {
    const stub = await serve(() => thinking({ content: null, reasoning_content: '{"score": [1, 1]}' }, 'stop'));
    const format = { name: 'two', schema: { type: 'object' } };
    const judgement = await connect(stub).client.ask(query(64, { format }));
    expect(judgement).toMatchObject({ problem: 'empty', scores: [] });
    expect(judgement.detail).toContain("set reward.leave_out: ['response_format']");
  });
});

describe('what an account cannot pay', () => {
  it.each([
    ['a balance', openAiError(402, 'The balance is too low')],
    ['a quota', { kind: 'json', status: 429, body: { error: { message: 'x', code: 'insufficient_quota' } } } as const],
  ])('is not asked again: %s', async (_name, refusal) => {
    const stub = await serve(() => refusal);
    expect(await connect(stub).client.ask(query())).toMatchObject({ problem: 'rate_limited', attempts: 1 });
  });
});

describe('the API key', () => {
  const key = 'sk-test/4f9c0d2b7a61';
  const echo = `Incorrect API key provided: ${key}. You can find your key at https://example.org.`;
  const long = `${'x'.repeat(100)} ${key}`;

  it.each<readonly [string, Behaviour]>([
    ['an error', openAiError(401, echo)],
    ['an error where an excerpt would cut it', openAiError(400, long)],
    ['an error of the older form', flat(echo)],
    ['an error in plain text', { kind: 'raw', status: 400, contentType: 'text/plain', body: echo }],
    [
      'an error with escaped slashes',
      {
        kind: 'raw',
        status: 400,
        contentType: 'application/json',
        body: JSON.stringify({ error: { message: echo } }).replaceAll('/', '\\/'),
      },
    ],
    ['a page', { kind: 'raw', status: 200, contentType: 'text/html', body: `<p>${echo}</p>` }],
    ['an answer', { kind: 'text', text: echo }],
    ['an object', { kind: 'json', body: { headers: { authorization: `Bearer ${key}` } } }],
  ])('is not kept where it comes back in %s', async (_name, behaviour) => {
    const stub = await serve(() => behaviour);
    const { client, store } = connect(stub, { apiKey: key });
    await client.ask(query());
    const kept = JSON.stringify(store.all());
    expect(kept).toMatch(/\[key\]|\.\.\.|x{50}/);
    expect(kept).not.toContain('4f9c0d');
    expect(JSON.stringify(await client.canary())).not.toContain('4f9c0d');
    const ready = await waitUntilReady(stub.url, stubModel, { maxWaitS: 0, apiKey: key }).then(
      () => '',
      (error: unknown) => `${String(error)} ${JSON.stringify(error)} ${String((error as Error).cause)}`,
    );
    expect(ready).not.toContain('4f9c0d');
  });

  it.each(['sk-test 4f9c', 'sk-test\n4f9c', 'sk-t\u00e9st4f9c', 'sk-test\u20004f9c'])(
    'that no header can carry is a config error that does not show it',
    async (bad) => {
      const stub = await serve(() => scoresText(7, 8));
      let found: unknown;
      try {
        connect(stub, { apiKey: bad });
      } catch (error) {
        found = error;
      }
      expect(found).toBeInstanceOf(ConfigError);
      expect((found as ConfigError).toText()).not.toContain('4f9c');
      await expect(waitUntilReady(stub.url, stubModel, { maxWaitS: 0, apiKey: bad })).rejects.toThrow(ConfigError);
    },
  );
});
