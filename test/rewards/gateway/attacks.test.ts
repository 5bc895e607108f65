/** The gateway as a running server, asked by clients that mean it ill, with its limits lowered so that little is sent. */
import type { Gateway } from '../../../src/rewards/gateway/server.js';
import OpenAI from 'openai';
import { describe, expect, it } from 'vitest';
import { encodePng } from '../../../src/core/images/image.js';
import { dial, rawStatus, until } from '../../core/http/client.js';
import { numberedImage, scoresText, stubModel, type Behave, type StubOptions } from '../judge/stub_judge.js';
import { gatewayPlace, type GatewayOptionsInput, startGateway } from './gateway_place.js';

const place = gatewayPlace();
const scores: Behave = () => scoresText(7, 8);
const judge = async (behave: Behave = scores, options: StubOptions = {}): Promise<string> =>
  (await place.judge(behave, options)).url;
const gateway = async (options: Partial<GatewayOptionsInput> = {}): Promise<Gateway> =>
  place.gateway({ ...options, upstreams: options.upstreams ?? [await judge()] });

const dataUrl = async (): Promise<string> =>
  `data:image/png;base64,${Buffer.from(await encodePng(numberedImage(1))).toString('base64')}`;
const image = (url: string) => ({ type: 'image_url', image_url: { url } });

async function chat(more: Record<string, unknown> = {}, content?: readonly unknown[]) {
  const parts = content ?? [{ type: 'text', text: 'grade it' }, image(await dataUrl())];
  return { model: stubModel, messages: [{ role: 'user', content: parts }], temperature: 0, seed: 1, ...more };
}

async function post(url: string, body: unknown) {
  const reply = await fetch(`${url}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const { error } = (await reply.json()) as { error?: { message: string } };
  return { status: reply.status, message: error?.message ?? '' };
}

describe('web pages', () => {
  it.each([
    ['under a name that leads here', 'host: evil.com:4878', 403],
    ['of another origin', 'host: 127.0.0.1\r\norigin: http://evil.com', 403],
    ['by an image or a script', 'host: 127.0.0.1\r\nsec-fetch-site: cross-site', 403],
    ['not at all', 'host: 127.0.0.1', 200],
  ])('that ask %s: %s', async (_what, head, status) => {
    const { url } = await gateway();
    const body = JSON.stringify(await chat());
    const more = ['content-type: application/json', `content-length: ${body.length}`];
    expect(await rawStatus(url, ['GET /health HTTP/1.1', head])).toBe(status);
    expect(await rawStatus(url, ['GET /v1/models HTTP/1.1', head])).toBe(status);
    expect(await rawStatus(url, ['POST /v1/chat/completions HTTP/1.1', head, ...more], body)).toBe(status);
  });
});

it('a token that can be guessed is rejected at the start', async () => {
  const start = startGateway({ upstreams: [await judge()], port: 0 }, { token: 'let-me-in' });
  await expect(start).rejects.toThrow('at least 16');
});

it('an address that is none is not found', async () => {
  const { url } = await gateway();
  for (const path of ['//', '//v1/models', '/run//v1/models', '/v1/models/%']) {
    expect(await rawStatus(url, [`GET ${path} HTTP/1.1`, 'host: localhost']), path).toBe(404);
  }
});

describe('memory', () => {
  it('is not filled by uploads that never end, and others are answered beside them', async () => {
    const { url } = await gateway({ maxBodyMb: 1, maxHeldMb: 4 });
    const uploads = Array.from({ length: 40 }, () => {
      const client = dial(url);
      client.socket.write(
        'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n',
      );
      client.socket.write(Buffer.alloc(950_000, '['));
      return client;
    });
    await until(() => uploads.filter(({ text }) => text().startsWith('HTTP/1.1 429')).length >= 35);
    for (let i = 0; i < 10; i++) expect(await post(url, await chat({ seed: i }))).toMatchObject({ status: 200 });
    for (const { socket } of uploads) socket.destroy();
  });

  it.each([
    ['tiny values', '0,', 'more than 100000 values'],
    ['empty objects', '{},', 'more than 100000 values'],
    ['lists in lists', '[', 'nested deeper than 32'],
  ])('is not filled by %s', async (_what, piece, words) => {
    const { url } = await gateway();
    const body = JSON.stringify(await chat({ padding: 'HERE' })).replace('"HERE"', `[${piece.repeat(300_000)}`);
    const reply = await post(url, body);
    expect(reply.status).toBe(400);
    expect(reply.message).toContain(words);
  });
});

it('too many images are rejected before any is decoded', async () => {
  const { url } = await gateway({ maxImages: 3 });
  const { status, message } = await post(
    url,
    await chat(
      {},
      Array.from({ length: 4 }, () => image('data:nonsense')),
    ),
  );
  expect(status).toBe(400);
  expect(message).toContain('has 4 images; at most 3');
});

describe('the models', () => {
  const listing = (length: number, ...ids: readonly string[]): StubOptions => ({
    models: {
      kind: 'json',
      body: { data: ids.map((id) => ({ id, root: `root/of/${id}`, max_model_len: length })) },
    },
  });

  it('are listed with the least of their lengths, and one by one', async () => {
    const upstreams = [
      await judge(scores, listing(8192, stubModel, 'org/alias')),
      await judge(scores, listing(4096, stubModel)),
    ];
    const { url } = await gateway({ upstreams });
    const client = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 });
    await until(async () => {
      const { data } = await client.models.list();
      return data.some((model) => (model as unknown as { max_model_len: number }).max_model_len === 4096);
    });
    expect((await client.models.list()).data).toMatchObject([
      { id: stubModel, root: `root/of/${stubModel}`, max_model_len: 4096 },
      { id: 'org/alias', root: 'root/of/org/alias', max_model_len: 8192 },
    ]);
    expect(await client.models.retrieve('org/alias')).toMatchObject({ id: 'org/alias', max_model_len: 8192 });
    expect(await (await fetch(`${url}/models/org/alias`)).json()).toMatchObject({ id: 'org/alias' });
    await expect(client.models.retrieve('other')).rejects.toMatchObject({ status: 404, type: 'NotFoundError' });
  });
});
