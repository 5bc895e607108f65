/**
 * The judge calls of other trainers, as their source makes them, through the gateway: EARL's (mair-lab/EARL, rl/reward.py and rl/utils.py) and the two
 * of trl_qwen_ie (nickni-canva/trl_qwen_ie, train_grpo_qwen_image_edit.py). Both send them with the Python client of OpenAI.
 */
import sharp from 'sharp';
import { afterEach, describe, expect, it } from 'vitest';
import { encodePng } from '../../../src/core/images/image.js';
import { startGateway, type RunningGateway } from '../../../src/rewards/gateway/server.js';
import type { GatewayOptionsInput } from '../../../src/rewards/gateway/options.js';
import {
  numberedImage,
  openAiError,
  startStubJudge,
  type Behave,
  type Behaviour,
  type StubJudge,
} from '../judge/stub_judge.js';

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

const EARL_MODEL = 'Qwen/Qwen2.5-VL-72B-Instruct';
const GPT = 'gpt-4o-2024-11-20';

async function judge(model: string, behave: Behave): Promise<StubJudge> {
  const body = { object: 'list', data: [{ id: model, object: 'model', max_model_len: 4096 }] };
  const stub = await startStubJudge(
    (request) => (request.text.startsWith('This is a check') ? { kind: 'text', text: 'fine' } : behave(request)),
    { models: { kind: 'json', body } },
  );
  opened.push(stub.close);
  return stub;
}

async function gateway(upstreams: readonly string[], more: Partial<GatewayOptionsInput> = {}): Promise<RunningGateway> {
  const running = await startGateway({ upstreams: [...upstreams], port: 0, ...more });
  opened.push(() => running.close());
  return running;
}

interface Reply {
  readonly status: number;
  readonly body: {
    readonly choices?: readonly { readonly message: { readonly content: string; readonly refusal?: string | null } }[];
  };
}

/** With the headers of openai-python. */
async function ask(baseUrl: string, key: string, body: unknown, headers: Record<string, string> = {}): Promise<Reply> {
  const response = await fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: {
      accept: 'application/json',
      'content-type': 'application/json',
      'user-agent': 'AsyncOpenAI/Python 1.75.0',
      authorization: `Bearer ${key}`,
      'x-stainless-lang': 'python',
      'x-stainless-async': 'async:asyncio',
      'x-stainless-retry-count': '0',
      'x-stainless-read-timeout': '1000',
      ...headers,
    },
  });
  return { status: response.status, body: (await response.json()) as Reply['body'] };
}

const png = async (number: number): Promise<string> =>
  Buffer.from(await encodePng(numberedImage(number))).toString('base64');
const pngPart = async (number: number) => ({
  type: 'image_url',
  image_url: { url: `data:image/png;base64,${await png(number)}` },
});

describe("EARL's client", () => {
  const jpegPart = async (number: number) => {
    const { width, height, data } = numberedImage(number);
    const jpeg = await sharp(data, { raw: { width, height, channels: 3 } })
      .jpeg({ quality: 75 })
      .toBuffer();
    return { type: 'image_url', image_url: { url: `data:image/jpeg;base64,${jpeg.toString('base64')}` } };
  };
  const viescore = async (text: string, ...images: readonly number[]) => ({
    model: EARL_MODEL,
    messages: [{ role: 'user', content: [{ type: 'text', text }, ...(await Promise.all(images.map(jpegPart)))] }],
    max_tokens: 1400,
  });
  const groundScore = async () => ({
    model: EARL_MODEL,
    messages: [
      { role: 'system', content: 'You compare a predicted image with the ground truth.' },
      {
        role: 'user',
        content: [{ type: 'text', text: '### Instruction\nmake it red' }, await jpegPart(1), await jpegPart(2)],
      },
    ],
    max_tokens: 1300,
    temperature: 0.3,
  });

  it('waits for GET /models until it is answered with 200', async () => {
    const { url, ready } = await gateway([(await judge(EARL_MODEL, () => ({ kind: 'text', text: '' }))).url]);
    const look = async (): Promise<number> => (await fetch(`${url}/models`)).status;
    expect([200, 503]).toContain(await look());
    await ready;
    expect(await look()).toBe(200);
    const away = await gateway(['http://127.0.0.1:9']);
    expect((await fetch(`${away.url}/models`)).status).toBe(503);
  });

  it('asks both questions of VIEScore and for the ground score, and reads the words of each reply', async () => {
    const replies = {
      sc: '{"score": [7, 9], "reasoning": "ok"}',
      pq: '{"score": [8, 6]}',
      ground: 'alike\n<score>8</score>',
    };
    const stub = await judge(EARL_MODEL, ({ kind }) => ({ kind: 'text', text: replies[kind] }));
    const { url, ready } = await gateway([stub.url]);
    await ready;
    const before = stub.requests.length;
    const sent = [await viescore('RULES\nmake it red', 1, 2), await viescore('RULES', 2), await groundScore()];
    const answers = await Promise.all(sent.map((body) => ask(url, 'NONE', body)));
    expect(answers.map(({ status, body }) => [status, body.choices?.[0].message.content])).toEqual([
      [200, replies.sc],
      [200, replies.pq],
      [200, replies.ground],
    ]);
    // Unchanged: no seed, no temperature where none is sent, the JPEGs as they are.
    const received = stub.requests.slice(before).map(({ body }) => body);
    expect(received).toHaveLength(3);
    expect(received).toEqual(expect.arrayContaining(sent));
    // Its key is not passed on.
    expect(stub.requests.at(-1)?.authorization).toBeUndefined();
  });

  it.each<readonly [string, Behaviour, Partial<GatewayOptionsInput>]>([
    ['a judge that breaks off', { kind: 'reset' }, {}],
    ['a judge that hangs', { kind: 'silent' }, { timeoutS: 0.2 }],
    ['a judge that fails', openAiError(500, 'the engine is dead'), {}],
    ['a judge that is overloaded', openAiError(429, 'slow down'), {}],
  ])('is told in a status that it retries of %s', async (_what, behaviour, more) => {
    const stub = await judge(EARL_MODEL, () => behaviour);
    const { url, ready } = await gateway([stub.url], more);
    await ready;
    const { status } = await ask(url, 'NONE', await viescore('RULES', 2));
    // RateLimitError, or InternalServerError for all of 500 and above.
    expect(status === 429 || status >= 500).toBe(true);
  });
});

describe("trl_qwen_ie's client", () => {
  const grade = { enum: Array.from({ length: 11 }, (_, i) => String(i)), type: 'string' };
  /** What `beta.chat.completions.parse` makes of a pydantic model. */
  const format = (name: string, properties: Readonly<Record<string, object>>) => ({
    type: 'json_schema',
    json_schema: {
      schema: {
        properties: Object.fromEntries(
          Object.entries(properties).map(([key, value]) => [key, { title: key, ...value }]),
        ),
        required: Object.keys(properties),
        title: name,
        type: 'object',
        additionalProperties: false,
      },
      name,
      strict: true,
    },
  });
  const parse = { 'x-stainless-helper-method': 'beta.chat.completions.parse' };

  it('asks for alignment and for quality in two schemas, and parses both', async () => {
    const alignment = { reasoning: 'it is red', instruction_following: '9', identity_preservation: '8' };
    const quality = { perceptual_quality: '7' };
    const stub = await judge(GPT, ({ images }) => ({
      kind: 'text',
      text: JSON.stringify(images.length === 2 ? alignment : quality),
    }));
    const { url, ready } = await gateway([stub.url]);
    await ready;
    const before = stub.requests.length;
    const system = (content: string) => ({ role: 'system', content });
    const sent = [
      {
        messages: [
          system('Give two scores.'),
          { role: 'user', content: [await pngPart(1), await pngPart(2), { type: 'text', text: 'make it red' }] },
        ],
        model: GPT,
        response_format: format('CoTAlignment', {
          reasoning: { type: 'string' },
          instruction_following: grade,
          identity_preservation: grade,
        }),
      },
      {
        messages: [
          system('Give one score.'),
          { role: 'user', content: [await pngPart(2), { type: 'text', text: 'make it red' }] },
        ],
        model: GPT,
        response_format: format('Quality', { perceptual_quality: grade }),
      },
    ];
    const parsed: unknown[] = [];
    for (const body of sent) {
      const reply = await ask(url, 'sk-of-the-caller', body, parse);
      expect(reply.status).toBe(200);
      const [{ message }] = reply.body.choices ?? [];
      expect(message.refusal ?? null).toBeNull();
      parsed.push(JSON.parse(message.content));
    }
    expect(parsed).toEqual([alignment, quality]);
    expect(stub.requests.slice(before).map(({ body }) => body)).toEqual(sent);
  });
});
