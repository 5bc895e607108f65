/** What editrl makes of the replies of a real vLLM 0.32, recorded with their headers. */
import { describe, expect, it } from 'vitest';
import { EndpointError } from '../../../src/core/errors.js';
import { JudgeClient, type JudgeClientOptions } from '../../../src/rewards/judge/client.js';
import { parseExpectedDigit } from '../../../src/rewards/judge/first_token.js';
import { judgeImage } from '../../../src/rewards/judge/images.js';
import type { JudgeQuery } from '../../../src/rewards/judge/judge.js';
import { parseScores } from '../../../src/rewards/judge/parse.js';
import { twoScores } from '../../../src/rewards/judge/prompts.js';
import { waitUntilReady, type ReadinessOptions } from '../../../src/rewards/judge/readiness.js';
import { viescore } from '../../../src/rewards/terms/viescore.js';
import { wholeItem } from '../terms/term_contract.js';
import { testServices } from '../terms/term_services.js';
import { MemoryJudgementStore } from './memory_store.js';
import { played, recorded, replyOf, type Served } from './recorded_vllm.js';
import { fastClock, numberedImage, startStubJudge, type Behaviour, type StubJudge } from './stub_judge.js';
import { stubPlace } from './stub_place.js';

const { closing } = stubPlace();
const key = 'sk-right-5e8a21c7';

function question(changes: Partial<JudgeQuery> = {}, images = 2): JudgeQuery {
  const shown = Array.from({ length: images }, (_, i) => judgeImage(numberedImage(i + 1, 64), 'test'));
  return {
    key: '0/1/0/test',
    messages: [{ role: 'user', parts: ['Grade this.', ...shown] }],
    format: twoScores,
    temperature: 0,
    maxCompletionTokens: 400,
    parse: (text, cutOff) => parseScores(text, 2, cutOff),
    ...changes,
  };
}

async function serve(served: Served = {}, listing = 'models', port?: number) {
  const isLocked = (authorization: string | undefined): boolean =>
    served.key !== undefined && authorization !== `Bearer ${served.key}`;
  const stub = await startStubJudge((request) => played(replyOf(request, served)), {
    models: (authorization) => played(isLocked(authorization) ? 'no_key_models' : listing),
    ...(port === undefined ? {} : { port }),
  });
  closing.push(stub.close);
  return stub;
}

function connect({ url }: Pick<StubJudge, 'url'>, options: Partial<JudgeClientOptions> = {}) {
  const client = new JudgeClient({
    endpoints: [url],
    model: 'judge',
    store: new MemoryJudgementStore(),
    clock: fastClock(10),
    random: () => 0.5,
    ...options,
  });
  closing.push(() => client.close());
  return client;
}

async function readiness({ url }: StubJudge, options: Partial<ReadinessOptions> = {}, model = 'judge') {
  return waitUntilReady(url, model, { maxWaitS: 0, clock: fastClock(100), ...options });
}

async function whyNotReady(...args: Parameters<typeof readiness>): Promise<EndpointError> {
  const error: unknown = await readiness(...args).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(EndpointError);
  return error as EndpointError;
}

it.each(Object.entries(recorded))('the body of %s is as long as its header reports', (_name, { headers, body }) => {
  expect(Buffer.byteLength(JSON.stringify(body))).toBe(Number(headers['content-length']));
});

describe('a vLLM 0.32', () => {
  it('is ready, judges VIEScore, and reports its tokens', async () => {
    const stub = await serve();
    expect(await readiness(stub, { replyTokens: 400 })).toEqual({ endpoints: [stub.url], context: 4096 });
    const client = connect(stub);
    expect(await client.canary()).toEqual({ ok: true });
    expect(await client.ask(question())).toMatchObject({
      scores: [6, 4],
      attempts: 1,
      tokens: { prompt: 301, completion: 71 },
    });
    const term = await viescore.create({}, testServices(client));
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'scored', value: 4, normalised: 0.4 });
  });

  it('gives log-probabilities, whose digits are read', async () => {
    const parse: JudgeQuery['parse'] = (text) => parseExpectedDigit(text, 5);
    const judgement = await connect(await serve()).ask(
      question({ format: null, maxCompletionTokens: 1, topLogprobs: 20, parse }),
    );
    const alternatives = JSON.parse(judgement.text) as unknown[];
    expect(alternatives).toHaveLength(20);
    // A model of random weights favors no digit.
    expect(judgement).toMatchObject({ problem: 'unparsable', scores: [], attempts: 1 });
  });

  it('that writes white space up to the limit is asked without the format', async () => {
    const stub = await startStubJudge(({ body }) => played('response_format' in body ? 'white_space' : 'viescore'));
    closing.push(stub.close);
    expect(await connect(stub).ask(question())).toMatchObject({ scores: [6, 4], attempts: 2 });
    expect(stub.requests.map(({ body }) => [body.max_completion_tokens, 'response_format' in body])).toEqual([
      [400, true],
      [400, false],
    ]);
  });
});

describe('a vLLM with a key', () => {
  it.each([{}, { apiKey: 'sk-wrong' }])('is not ready with %j, and its answers are no scores', async (options) => {
    const stub = await serve({ key }, 'models_short');
    const error = await whyNotReady(stub, options);
    expect(error.message).toContain('401');
    expect(error.next).toBe('Export OPENAI_API_KEY with a key that the server accepts.');
    expect(await connect(stub, options).ask(question())).toMatchObject({
      problem: 'bad_request',
      scores: [],
      attempts: 1,
    });
  });

  it('answers if it is right', async () => {
    const stub = await serve({ key });
    await readiness(stub, { apiKey: key });
    expect(await connect(stub, { apiKey: key }).ask(question())).toMatchObject({ scores: [6, 4], attempts: 1 });
  });
});

describe('a vLLM with other models', () => {
  it('is reported with the names that it lists', async () => {
    const stub = await serve();
    const model = 'Qwen/Qwen2.5-VL-7B-Instruct';
    const error = await whyNotReady(stub, {}, model);
    expect(error.message).toContain(`it does not serve '${model}'; it serves: 'judge', 'other-name'`);
    expect(stub.requests).toHaveLength(0);
    const alias = await whyNotReady(stub, { alias: true }, model);
    expect(alias.message).toContain('Valid aliases: judge, other-name.');
  });

  it('gives no score for a name that it does not serve, and its words explain why', async () => {
    const judgement = await connect(await serve(), { model: 'another' }).ask(question());
    expect(judgement).toMatchObject({ problem: 'bad_request', scores: [], attempts: 1 });
    expect(judgement.detail).toContain('Valid aliases: judge, other-name.');
  });
});

describe('a vLLM with a short context', () => {
  it.each(['judge', 'judge-lora'])('%s is not ready for a reply longer than it, without a request', async (model) => {
    const stub = await serve({ context: 512 }, 'models_short');
    const error = await whyNotReady(stub, { replyTokens: 700 }, model);
    expect(error.message).toContain('its context has 512 tokens (max_model_len), and a reply may take 700');
    expect(error.next).toContain('--max-model-len');
    expect(stub.requests).toHaveLength(0);
  });

  it('gets the question with a longer reply once', async () => {
    const stub = await serve({ context: 512 }, 'models_short');
    const judgement = await connect(stub).ask(question({ maxCompletionTokens: 700 }));
    expect(judgement).toMatchObject({ problem: 'bad_request', scores: [], attempts: 1 });
    expect(judgement.detail).toContain('cannot be greater than max_model_len=512');
    expect(judgement.detail).not.toContain('leave_out');
  });

  it.each(['long_text', 'very_long_text', 'long_by_image', 'narrow_image'])('gets %s once', async (name) => {
    const stub = await startStubJudge(() => played(name));
    closing.push(stub.close);
    const judgement = await connect(stub).ask(question());
    expect(judgement).toMatchObject({ problem: 'bad_request', scores: [], attempts: 1 });
    expect(judgement.detail).not.toContain('leave_out');
  });

  it('scores the questions that fit', async () => {
    const client = connect(await serve({ context: 512, room: 100 }));
    expect(await client.ask(question())).toMatchObject({ scores: [6, 4] });
    const long = question({ key: '0/1/1/test', messages: [{ role: 'user', parts: ['Grade this. '.repeat(20)] }] });
    expect(await client.ask(long)).toMatchObject({ problem: 'bad_request', scores: [], attempts: 1 });
  });
});

describe('a vLLM with one image per prompt', () => {
  it('is not ready, with the option that allows two', async () => {
    const error = await whyNotReady(await serve({ images: 1 }));
    expect(error.message).toContain('At most 1 image(s) may be provided in one prompt');
    expect(error.next).toContain(`--limit-mm-per-prompt '{"image":2,"video":0}'`);
  });

  it('answers questions of one image, and leaves an edit without a score', async () => {
    const client = connect(await serve({ images: 1 }));
    expect(await client.ask(question({}, 1))).toMatchObject({ scores: [6, 4] });
    const term = await viescore.create({}, testServices(client));
    expect(await term.score(wholeItem())).toMatchObject({ kind: 'unscored', reason: 'bad_request' });
  });
});

describe('a vLLM that restarts in the middle', () => {
  it('costs no score: its questions are asked the same again', async () => {
    let isDying = false;
    const dying = (answer: Behaviour, asked: number): Behaviour =>
      !isDying ? answer : asked === 0 ? played('worker_killed') : { kind: 'reset' };
    const first = await startStubJudge((request) => dying(played(replyOf(request, {})), request.asked));
    const client = connect(first, { concurrency: 2 });
    const ask = (i: number) => client.ask(question({ key: `0/1/${i}/test`, maxCompletionTokens: 400 + i }));
    expect(await ask(0)).toMatchObject({ scores: [6, 4], attempts: 1 });
    isDying = true;
    const asked = Promise.all([ask(1), ask(2), ask(3)]);
    while (first.requests.length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    await first.close();
    // Refuses connections meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 40));
    const second = await serve({}, 'models', first.port);
    const judgements = await asked;
    expect(judgements.map(({ scores, problem }) => ({ scores, problem }))).toEqual(
      Array(3).fill({ scores: [6, 4], problem: null }),
    );
    expect(judgements[0].attempts).toBeGreaterThan(1);
    const sent = (stub: StubJudge, limit: number) =>
      stub.requests.flatMap(({ body }) => (body['max_completion_tokens'] === limit ? [body] : []));
    for (const limit of [401, 402]) expect(sent(second, limit)).toEqual([sent(first, limit)[0]]);
  });
});
