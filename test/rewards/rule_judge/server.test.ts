import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { instructionOf, type Plan } from '../../../src/data/tiny/edits.js';
import { JUDGE_MODEL, startJudge, type RunningJudge } from '../../../src/rewards/rule_judge/server.js';
import { parseScores } from '../../../src/rewards/judge/parse.js';
import { encodePlainPng } from '../../../src/core/images/png.js';
import { DEFAULT_GEOMETRY } from '../../../src/data/tiny/world.js';
import { example, sourceOf, truthOf } from '../../data/tiny/scene_pictures.js';

let judge: RunningJudge;
beforeAll(async () => {
  judge = await startJudge({ port: 0, host: '127.0.0.1', models: ['some/other-name'] });
});
afterAll(async () => {
  await judge.close();
});

interface Reply {
  readonly id: string;
  readonly object: string;
  readonly model: string;
  readonly choices: readonly { message: { role: string; content: string }; finish_reason: string; index: number }[];
  readonly usage: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
  readonly error?: { message: string; type: string; param: string | null; code: number };
}

async function post(body: unknown): Promise<{ status: number; reply: Reply }> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(`${judge.url}/chat/completions`, { method: 'POST', body: text });
  return { status: response.status, reply: (await response.json()) as Reply };
}

const url = (png: Uint8Array, type = 'image/png'): string =>
  `data:${type};base64,${Buffer.from(png).toString('base64')}`;
const image = (at: string) => ({ type: 'image_url', image_url: { url: at } });
const say = (text: string) => ({ type: 'text', text });
const plan: Plan = example(3);
const words = `Judge this.\nInstruction: not this one\nInstruction: ${instructionOf(plan.edit, DEFAULT_GEOMETRY)}`;
const source = image(url(encodePlainPng(sourceOf(plan))));
const truth = image(url(encodePlainPng(truthOf(plan))));
const ask = (content: unknown, more: object = {}) => ({
  model: JUDGE_MODEL,
  messages: [{ role: 'user', content }],
  ...more,
});
const scores = (reply: Reply): unknown => (JSON.parse(reply.choices[0].message.content) as { score: unknown }).score;

describe('the judge over HTTP', () => {
  it('is healthy and lists its models', async () => {
    expect((await fetch(judge.url.replace('/v1', '/health'))).status).toBe(200);
    const models = (await (await fetch(`${judge.url}/models`)).json()) as { data: { id: string }[] };
    expect(models.data.map(({ id }) => id)).toEqual([JUDGE_MODEL, 'some/other-name']);
  });

  it('answers two images with success and over-editing, whatever else is in the request', async () => {
    const more = { temperature: 0, top_k: -1, seed: 4, response_format: { type: 'json_schema' }, unheard_of: true };
    const { status, reply } = await post(ask([say(words), source, truth], more));
    expect(status).toBe(200);
    expect(reply).toMatchObject({ object: 'chat.completion', model: JUDGE_MODEL });
    expect(reply.choices).toHaveLength(1);
    expect(reply.choices[0]).toMatchObject({ index: 0, finish_reason: 'stop', message: { role: 'assistant' } });
    // Two images of 32x32 pixels, of which 28x28 are a token.
    expect(reply.usage.prompt_tokens).toBe(Math.ceil(words.length / 4) + 2 * 2);
    expect(reply.usage.completion_tokens).toBe(Math.ceil(reply.choices[0].message.content.length / 4));
    expect(reply.usage.total_tokens).toBe(reply.usage.prompt_tokens + reply.usage.completion_tokens);
    expect(scores(reply)).toEqual([10, 10]);
    expect(scores((await post(ask([say(words), source, source]))).reply)).toEqual([0, 10]);
  });

  it('answers one image with naturalness and artifacts', async () => {
    expect(scores((await post(ask([say('How does it look?'), truth]))).reply)).toEqual([10, 10]);
  });

  it('answers a rubric that asks for a score tag with the ground score', async () => {
    const rubric = { role: 'system', content: 'End with <score>N</score>.' };
    const content = [say(words), truth, truth];
    const good = await post({ model: 'some/other-name', messages: [rubric, { role: 'user', content }] });
    expect(good.reply.choices[0].message.content).toMatch(/^[^<]+\n<score>10<\/score>$/);
    const copied = [say(words), truth, source];
    const bad = await post({ model: JUDGE_MODEL, messages: [rubric, { role: 'user', content: copied }] });
    expect(bad.reply.choices[0].message.content).toMatch(/<score>0<\/score>$/);
  });

  it('gives several choices and stops at the length that was allowed', async () => {
    const { reply } = await post(ask([say(words), source, truth], { n: 3, max_completion_tokens: 2 }));
    expect(reply.choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(reply.choices[0].finish_reason).toBe('length');
    expect(reply.choices[0].message.content).toHaveLength(8);
  });

  it('gives no score, in any form of question, for an instruction that it cannot read', async () => {
    const asked = (line: string): string => `Judge this.\n${line}: make the sky look stormy`;
    const instruction = say(asked('Instruction'));
    const tag = { role: 'system', content: 'End with <score>N</score>.' };
    const ground = { model: JUDGE_MODEL, messages: [tag, { role: 'user', content: [instruction, truth, truth] }] };
    const bodies: Readonly<Record<string, unknown>> = {
      consistency: ask([instruction, source, truth]),
      alignment: ask([say(asked('Request')), source, truth]),
      digit: ask([instruction, source, truth], { logprobs: true, top_logprobs: 20 }),
      pair: ask([instruction, source, truth, source]),
      ground,
    };
    for (const [form, body] of Object.entries(bodies)) {
      const { status, reply } = await post(body);
      expect(status, form).toBe(200);
      const { content } = reply.choices[0].message;
      expect(content, form).toMatch(/^The instruction cannot be read/);
      expect(parseScores(content, 2).ok, form).toBe(false);
      expect(reply.choices[0], form).toMatchObject({ logprobs: null });
    }
    expect(scores((await post(ask([say('How does it look?'), truth]))).reply)).toEqual([10, 10]);
  });

  it('gives none either if it is biased', async () => {
    const content = [say('Judge this.\nInstruction: make the sky look stormy'), source, truth];
    const other = await startJudge({ port: 0, host: '127.0.0.1', biases: { noise: 1, copies: 1 } });
    const response = await fetch(`${other.url}/chat/completions`, {
      method: 'POST',
      body: JSON.stringify(ask(content)),
    });
    const [{ message }] = ((await response.json()) as Reply).choices;
    expect(message.content).toMatch(/^The instruction cannot be read/);
    await other.close();
  });

  const broken = image(url(encodePlainPng(truthOf(plan)).slice(0, 60)));
  const tooLarge = encodePlainPng({ width: 2049, height: 2048, data: new Uint8Array(2049 * 2048 * 3) });
  const refused: readonly [string, unknown, number, RegExp][] = [
    ['a model that is not served', { ...ask([source]), model: 'gpt' }, 404, /`gpt` does not exist/],
    ['what is not JSON', '{"model":', 400, /not JSON/],
    ['no messages', { model: JUDGE_MODEL }, 400, /messages/],
    ['words that it cannot grade', ask('Question: "why?"\nAnswer: "so"'), 400, /questions that end in a list/],
    ['too many images', ask([source, source, source, source]), 400, /At most 3 image\(s\)/],
    ['an image that cannot be decoded', ask([broken]), 400, /Failed to load image/],
    ['an image of too many pixels', ask([image(url(tooLarge))]), 400, /2049x2048 pixels, more than the 4194304/],
    ['an image behind a link', ask([image('http://127.0.0.1/x.png')]), 400, /data URL/],
    ['a part of another kind', ask([{ type: 'video_url', video_url: {} }]), 400, /content/],
    ['streaming', ask([source], { stream: true }), 400, /stream/],
  ];
  it.each(refused)('rejects %s with an error body', async (_what, body, code, message) => {
    const { status, reply } = await post(body);
    expect(status).toBe(code);
    expect(reply.error).toMatchObject({ code, type: code === 404 ? 'NotFoundError' : 'BadRequestError' });
    expect(reply.error).toHaveProperty('param');
    expect(reply.error?.message).toMatch(message);
  });
});
