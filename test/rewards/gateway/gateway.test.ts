/** The gateway over HTTP, in front of judges that do as they are told. */
import { describe, expect, it, vi } from 'vitest';
import { encodePng } from '../../../src/core/images/image.js';
import { waitUntilReady } from '../../../src/rewards/judge/readiness.js';
import type { Behave, StubJudge } from '../judge/stub_judge.js';
import { choosy, numberedImage, openAiError, scoresText, stubModel } from '../judge/stub_judge.js';
import { afterReadiness, gatewayPlace, startGateway } from './gateway_place.js';

const { judge, gateway } = gatewayPlace();

async function chatBody(number: number, more: Record<string, unknown> = {}) {
  const url = `data:image/png;base64,${Buffer.from(await encodePng(numberedImage(number))).toString('base64')}`;
  const image = { type: 'image_url', image_url: { url } };
  return {
    model: stubModel,
    messages: [{ role: 'user', content: [{ type: 'text', text: `number ${number}` }, image, image] }],
    temperature: 0,
    seed: 42,
    ...more,
  };
}

async function post(url: string, body: unknown, headers: Record<string, string> = {}) {
  const reply = await fetch(`${url}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const json = (await reply.json()) as {
    choices?: { message: { content: string } }[];
    error?: { message: string; type: string; code: number };
  };
  return { status: reply.status, headers: reply.headers, json, text: json.choices?.[0].message.content };
}

async function get(url: string, path: string, headers: Record<string, string> = {}) {
  const reply = await fetch(new URL(path, url), { headers });
  return { status: reply.status, text: await reply.text() };
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

describe('a request through the gateway', () => {
  it('reaches the judge as it was sent, with the key of the gateway and not of the caller', async () => {
    const stub = await judge(afterReadiness(() => scoresText(7, 8)));
    const { url } = await gateway({ upstreams: [stub.url] });
    const body = await chatBody(3, { structured_outputs: { choice: ['a'] }, top_k: -1 });
    const { temperature, messages } = body;
    const system = { role: 'system', content: 'You compare a predicted image with the ground truth.' };
    // As EARL's trainer asks for its ground score: no seed, the older name of the limit, a system message.
    const ofEarl = { model: stubModel, messages: [system, ...messages], max_tokens: 1300, temperature };
    // As trl_qwen_ie asks, by `beta.chat.completions.parse`.
    const schema = { properties: { quality: { enum: ['0', '1'], type: 'string' } }, type: 'object' };
    const json_schema = { schema, name: 'Quality', strict: true };
    const ofTrl = { model: stubModel, messages, response_format: { type: 'json_schema', json_schema } };
    for (const sent of [body, ofEarl, ofTrl]) {
      const reply = await post(url, sent, { authorization: 'Bearer secret-of-the-caller' });
      expect(reply).toMatchObject({ status: 200, text: '{"score":[7,8],"reasoning":"as told"}' });
      expect(stub.requests.at(-1)?.body).toEqual(sent);
      expect(stub.requests.at(-1)?.authorization).toBeUndefined();
    }
  });

  it.each([
    ['what is no JSON', '{', 400, 'not JSON'],
    ['a stream', { stream: true }, 400, 'does not stream'],
    ['no messages', { messages: [] }, 400, 'at least one message'],
    ['another model', { model: 'other' }, 404, 'does not exist'],
    ['an address instead of an image', { messages: imageMessage('http://example.org/a.png') }, 400, 'in the request'],
    ['a file instead of an image', { messages: imageMessage('file:///etc/passwd') }, 400, 'in the request'],
    ['an image that is none', { messages: imageMessage('data:image/png;base64,AAAA') }, 400, 'cannot be read'],
  ])('is rejected for %s, in the form of OpenAI', async (_what, change, status, words) => {
    const stub = await judge(afterReadiness(() => scoresText(7, 8)));
    const { url } = await gateway({ upstreams: [stub.url] });
    const asked = stub.requests.length;
    const body = typeof change === 'string' ? change : { ...(await chatBody(1)), ...change };
    const reply = await post(url, body);
    expect(reply.status).toBe(status);
    expect(reply.json.error).toMatchObject({ message: expect.stringContaining(words) as string, code: status });
    expect(stub.requests).toHaveLength(asked);
  });

  it('is rejected for its size in bytes, in pixels, and for its type', async () => {
    const stub = await judge(afterReadiness(() => scoresText(7, 8)));
    const { url } = await gateway({ upstreams: [stub.url], maxBodyMb: 0.001, maxImageMegapixels: 0.001 });
    expect((await post(url, { ...(await chatBody(1)), padding: 'x'.repeat(2000) })).status).toBe(413);
    const small = await gateway({ upstreams: [stub.url], maxImageMegapixels: 0.001 });
    expect((await post(small.url, await chatBody(1))).json.error?.message).toMatch(/megapixels/);
    expect((await post(url, 'a', { 'content-type': 'text/plain' })).status).toBe(415);
  });

  it('passes on what a judge rejects, and does not ask another one', async () => {
    const first = await judge(afterReadiness(() => openAiError(400, 'too many images')));
    const second = await judge(afterReadiness(() => openAiError(400, 'too many images')));
    const { url } = await gateway({ upstreams: [first.url, second.url] });
    await pause(50);
    const before = first.requests.length + second.requests.length;
    expect(await post(url, await chatBody(1))).toMatchObject({
      status: 400,
      json: { error: { message: 'too many images' } },
    });
    expect(first.requests.length + second.requests.length).toBe(before + 1);
  });
});

function imageMessage(url: string) {
  return [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }];
}

describe('fail-over', () => {
  it.each<[string, ReturnType<Behave>]>([
    ['drops the connection', { kind: 'reset' }],
    ['fails with 500', openAiError(500, 'EngineDead')],
    ['is overloaded', openAiError(429, 'slow down', { 'retry-after': '7' })],
    ['answers with a page', { kind: 'raw', status: 200, contentType: 'text/html', body: '<html>' }],
    ['refuses the key', openAiError(401, 'no key')],
  ])('goes to the other judge when one %s', async (_what, behaviour) => {
    const bad = await judge(afterReadiness(() => behaviour));
    const good = await judge(afterReadiness(() => scoresText(5, 5)));
    const { url } = await gateway({ upstreams: [bad.url, good.url] });
    await until(async () => (await get(url, '/metrics')).text.split('state="ready"} 1').length === 3);
    for (let i = 0; i < 4; i++) expect((await post(url, await chatBody(i))).status).toBe(200);
    expect(bad.requests.length).toBeGreaterThan(1);
  });

  it('returns the last judge’s reply with its Retry-After if all fail', async () => {
    const stub = await judge(afterReadiness(() => openAiError(429, 'slow down', { 'retry-after': '7' })));
    const { url } = await gateway({ upstreams: [stub.url] });
    const reply = await post(url, await chatBody(1));
    expect(reply.status).toBe(429);
    expect(reply.headers.get('retry-after')).toBe('7');
    const gone = await judge(afterReadiness(() => ({ kind: 'reset' })));
    const other = await gateway({ upstreams: [gone.url] });
    expect(await post(other.url, await chatBody(1))).toMatchObject({ status: 502, json: { error: { code: 502 } } });
  });

  it('gives up a judge that stalls when the time is over', async () => {
    const stub = await judge(afterReadiness(({ asked }) => ({ kind: asked === 0 ? 'stall' : 'silent' })));
    const { url } = await gateway({ upstreams: [stub.url], timeoutS: 0.3 });
    expect((await post(url, await chatBody(1))).status).toBe(504);
    expect((await post(url, await chatBody(1))).status).toBe(504);
  });

  it('leaves a dead judge alone, says so, and finds it again', async () => {
    let dead = false;
    const stub = await judge(() => (dead ? openAiError(503, 'gone') : scoresText(6, 6)));
    const lines: string[] = [];
    const { url } = await gateway(
      { upstreams: [stub.url], breakerFailures: 2 },
      { log: (level, text) => lines.push(`${level} ${text}`) },
    );
    dead = true;
    for (let i = 0; i < 2; i++) {
      expect(await post(url, await chatBody(i))).toMatchObject({ status: 503, json: { error: { message: 'gone' } } });
    }
    const refused = await post(url, await chatBody(9));
    expect(refused).toMatchObject({ status: 503, json: { error: { type: 'ServiceUnavailable' } } });
    expect(refused.headers.get('retry-after')).toBe('5');
    expect((await get(url, '/health')).status).toBe(503);
    dead = false;
    await until(async () => (await get(url, '/health')).status === 200);
    expect((await post(url, await chatBody(9))).status).toBe(200);
    expect(lines.some((line) => line.includes('is skipped: 2 requests in a row failed'))).toBe(true);
    expect(lines.at(-1)).toBe(`info ${stub.url} is back`);
  });
});

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 600; i++) {
    if (await holds()) return;
    await pause(50);
  }
  throw new Error('waited in vain');
}

describe('back-pressure', () => {
  it('keeps each run within its quota and rejects what would wait too long', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const stub = await judge(
      afterReadiness(async () => {
        await held;
        return scoresText(7, 8);
      }),
    );
    const { url } = await gateway({ upstreams: [stub.url], quota: 2, maxQueued: 3 });
    const greedy = Array.from({ length: 8 }, async (_, i) => post(url, await chatBody(i), { 'x-run-name': 'greedy' }));
    await until(async () => (await get(url, '/health')).text.includes('"waiting":3'));
    const other = post(url, await chatBody(100), { 'x-run-name': 'other' });
    await until(async () => (await get(url, '/health')).text.includes('"other":{"inFlight":1'));
    await until(async () => stub.peak() === 3);
    release();
    expect((await other).status).toBe(200);
    const replies = await Promise.all(greedy);
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(5);
    const refused = replies.filter(({ status }) => status === 429);
    expect(refused.map(({ headers }) => headers.get('retry-after'))).toEqual(['2', '2', '2']);
    expect((await post(url, await chatBody(1), { 'x-run-name': '../x' })).status).toBe(400);
  });
});

describe('who may ask', () => {
  it('starts on a reachable address with a token only, and then wants it', async () => {
    const stub = await judge(afterReadiness(() => scoresText(7, 8)));
    await expect(startGateway({ upstreams: [stub.url], model: stubModel, host: '0.0.0.0' })).rejects.toThrow(/token/);
    const { url } = await gateway({ upstreams: [stub.url] }, { token: 'let-me-in-please' });
    expect((await post(url, await chatBody(1))).status).toBe(401);
    expect((await post(url, await chatBody(1), { authorization: 'Bearer let-me-out-please' })).status).toBe(401);
    expect((await post(url, await chatBody(1), { authorization: 'Bearer let-me-in-please' })).status).toBe(200);
    expect((await get(url, '/metrics')).status).toBe(401);
    expect((await get(url, '/health')).text).toBe('{"status":"ready"}');
  });
});

describe('a judge that lists or answers by another name', () => {
  const otherwise = (listed: string, answersAs: string): Promise<StubJudge> =>
    judge(choosy([], scoresText(7, 8), answersAs), {
      models: { kind: 'json', body: { data: [{ id: listed, max_model_len: 4096 }] } },
    });

  it.each([
    ['answers', stubModel, 'add --model-alias \\"deployment-7\\"'],
    ['lists', 'a-file.gguf', 'add --model-alias.'],
  ])('is not asked where it %s so, and the flag that allows it is named', async (_does, listed, hint) => {
    const stub = await otherwise(listed, 'deployment-7');
    const said: string[] = [];
    const log = (_level: string, text: string): unknown => said.push(text);
    const { url } = await gateway({ upstreams: [stub.url] }, { log }, false);
    await vi.waitUntil(() => said.length > 0, { timeout: 30_000, interval: 5 });
    expect(`${said[0]} ${(await get(url, '/health')).text}`).toContain(hint);
    expect(said[0]).not.toMatch(/reward\.|model_alias/);
    expect((await post(url, await chatBody(1))).status).toBe(503);
  });

  it.each([[true], [['another', 'deployment-7']]])('is asked with --model-alias %j', async (modelAlias) => {
    const stub = await otherwise('a-file.gguf', 'deployment-7');
    const { url } = await gateway({ upstreams: [stub.url], modelAlias });
    expect((await post(url, await chatBody(1))).text).toContain('[7,8]');
    const { data } = JSON.parse((await get(url, '/v1/models')).text) as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).toEqual([stubModel, 'a-file.gguf']);
  });

  it('needs the name that it is asked by', async () => {
    const start = startGateway({ upstreams: ['http://127.0.0.1:9'], modelAlias: true, port: 0 });
    await expect(start).rejects.toThrow('other names need a model: name it with --model');
  });
});

describe('readiness and the end', () => {
  it('looks like a judge that is not there yet until one is', async () => {
    const stub = await judge(() => ({ kind: 'reset' }));
    const { url } = await gateway({ upstreams: [stub.url] }, {}, false);
    await until(
      async () => (await get(url, '/health')).text.includes('not_yet') || (await get(url, '/health')).status === 503,
    );
    await expect(waitUntilReady(url, stubModel, { maxWaitS: 0 })).rejects.toThrow(/503/);
  });

  it('reports at once a model that no judge serves', async () => {
    const stub = await judge(() => scoresText(1, 1));
    const { url } = await gateway({ upstreams: [stub.url], model: 'other' }, {}, false);
    await until(async () => (await get(url, '/health')).text.includes('does not serve'));
    await expect(waitUntilReady(url, 'other', { maxWaitS: 600 })).rejects.toThrow(/it serves: 'stub-judge'/);
  });
});
