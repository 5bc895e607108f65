/** The upstreams' key, in front of upstreams that quote it: it is in nothing that the gateway logs, replies or counts. */
import { startGateway } from './gateway_place.js';
import { afterEach, describe, expect, it } from 'vitest';
import { encodePng } from '../../../src/core/images/image.js';
import { redactBytes, redactor } from '../../../src/core/http/key.js';
import {
  numberedImage,
  openAiError,
  scoresText,
  startStubJudge,
  stubModel,
  type Behaviour,
} from '../judge/stub_judge.js';

const key = 'sk-test/4f9c0d2b+7a61==';
const told = `Invalid token passed: Bearer ${key}`;
/** No form of the key lacks them. */
const partOfKey = /4f9c0d|2b7a61/;

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

async function chatBody(): Promise<string> {
  const url = `data:image/png;base64,${Buffer.from(await encodePng(numberedImage(1))).toString('base64')}`;
  const content = [
    { type: 'text', text: 'which one?' },
    { type: 'image_url', image_url: { url } },
  ];
  return JSON.stringify({ model: stubModel, messages: [{ role: 'user', content }], temperature: 0, seed: 1 });
}

/** Everything that can be had of a gateway with this key, once it has found out about its upstream and was asked a question. */
async function everythingSaid(upstream: string): Promise<{ readonly said: string; readonly statuses: number[] }> {
  const log: string[] = [];
  let heard = (): void => undefined;
  const first = new Promise<void>((resolve) => (heard = resolve));
  const gateway = await startGateway(
    {
      upstreams: [upstream],
      model: stubModel,
      port: 0,
      breakerFailures: 1,
    },
    {
      upstreamKey: `${key}\n`,
      log: (level, text) => {
        log.push(`${level} ${text}`);
        heard();
      },
    },
  );
  opened.push(() => gateway.close());
  await first;
  const said: string[] = [];
  const statuses: number[] = [];
  const ask = async (path: string, init: RequestInit = {}): Promise<void> => {
    const reply = await fetch(new URL(path, gateway.url), init);
    statuses.push(reply.status);
    said.push(JSON.stringify([...reply.headers]), await reply.text());
  };
  const question = { method: 'POST', headers: { 'content-type': 'application/json' }, body: await chatBody() };
  for (let time = 0; time < 2; time++) await ask('/v1/chat/completions', question);
  for (const path of ['/health', '/metrics', '/v1/models']) await ask(path);
  await gateway.close();
  return { said: [...log, ...said].join('\n'), statuses };
}

const page = (status: number, body: string, contentType = 'text/html'): Behaviour => ({
  kind: 'raw',
  status,
  contentType,
  body,
});

describe('a key that an upstream quotes', () => {
  it.each<readonly [string, Behaviour, string]>([
    ['refuses it', openAiError(401, told), 'Bearer [key]'],
    ['refuses it with a page', page(403, `<h1>${told}</h1>`), '403'],
    ['fails', openAiError(500, told), 'Bearer [key]'],
    ['is no such server', page(200, `<h1>${told}</h1>`), 'Bearer [key]'],
    ['names a model by it', { kind: 'json', body: { object: 'list', data: [{ id: told }] } }, 'Bearer [key]'],
  ])('is not passed on where the listing %s', async (_what, models, expected) => {
    const stub = await startStubJudge(() => scoresText(1, 1), { models });
    opened.push(stub.close);
    const { said } = await everythingSaid(stub.url);
    expect(said).not.toMatch(partOfKey);
    expect(said).toContain(expected);
  });

  it.each<readonly [string, Behaviour, number, string]>([
    ['refuses it', openAiError(401, told), 502, 'rejected the gateway'],
    ['finds fault with the request', openAiError(400, told), 400, 'Bearer [key]'],
    ['fails', openAiError(500, told), 500, 'Bearer [key]'],
    ['is overloaded', openAiError(429, told, { 'retry-after': key }), 429, 'Bearer [key]'],
    ['answers with a page', page(200, `<h1>${told}</h1>`), 502, 'Bearer [key]'],
    ['answers the question with it', { kind: 'text', text: told }, 200, 'Bearer [key]'],
    [
      'spells it otherwise',
      page(400, JSON.stringify({ error: told }).replaceAll('/', '\\/').replaceAll('+', '\\u002B'), 'application/json'),
      400,
      'Bearer [key]',
    ],
  ])('is not passed on where an upstream %s', async (_what, behaviour, status, expected) => {
    const stub = await startStubJudge(({ text }) =>
      text.startsWith('This is a check') ? { kind: 'text', text: 'fine' } : behaviour,
    );
    opened.push(stub.close);
    const { said, statuses } = await everythingSaid(stub.url);
    expect(statuses[0]).toBe(status);
    expect(said).not.toMatch(partOfKey);
    expect(said).toContain(expected);
  });

  it('cannot be one that no header carries, and is not shown then', async () => {
    const start = startGateway({ upstreams: ['http://127.0.0.1:9'], port: 0 }, { upstreamKey: 'sk-4f9c0d\nb' });
    await expect(start).rejects.toThrow(/HTTP headers cannot carry/);
    await expect(start).rejects.not.toThrow(partOfKey);
  });
});

describe('what is done to a body', () => {
  it('leaves every byte that is not of the key, and short keys that are in any text', () => {
    const around = Buffer.from([0xff, 0x00, 0xc3, 0x28]);
    const clean = redactBytes(Buffer.concat([around, Buffer.from(key), around]), redactor(key));
    expect(clean).toEqual(Buffer.concat([around, Buffer.from('[key]'), around]));
    const other = Buffer.from('{"score": [7, 8]}');
    expect(redactBytes(other, redactor(key))).toBe(other);
    expect(redactor('score')('score')).toBe('score');
  });

  it('finds the key as JSON, web pages and addresses spell it', () => {
    const redact = redactor('a/b+c=d');
    const spelled = ['a/b+c=d', 'a\\/b\\u002bc\\u003Dd', 'a&#47;b&#x2B;c&#x3d;d', 'a%2Fb%2bc%3Dd'];
    expect(spelled.map(redact)).toEqual(spelled.map(() => '[key]'));
    expect(redact('a/b+c')).toBe('a/b+c');
  });
});
