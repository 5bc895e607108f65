/** Callers who take more than they should, of a gateway that serves others beside them. */
import type { Gateway } from '../../../src/rewards/gateway/server.js';
import { request as httpRequest } from 'node:http';
import { describe, expect, it } from 'vitest';
import type { Behave, Behaviour, StubJudge } from '../judge/stub_judge.js';
import { openAiError, scoresText, stubModel } from '../judge/stub_judge.js';
import { until } from '../../core/http/client.js';
import { afterReadiness, gatewayPlace, type GatewayOptionsInput } from './gateway_place.js';

const place = gatewayPlace();
const judge = (behave: Behave): Promise<StubJudge> => place.judge(afterReadiness(behave));

async function gateway(judges: readonly StubJudge[], options: Partial<GatewayOptionsInput> = {}): Promise<Gateway> {
  const running = await place.gateway({ upstreams: judges.map(({ url }) => url), ...options });
  await until(async () => (await health(running)).upstreams.every(({ state }) => state === 'ready'));
  return running;
}

interface Health {
  readonly status: string;
  readonly waiting: number;
  readonly upstreams: readonly { readonly state: string }[];
}

async function health({ url }: Gateway): Promise<Health> {
  return (await (await fetch(new URL('/health', url))).json()) as Health;
}

interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** Asks in words, from an address of this machine. */
function ask({ url }: Gateway, text: string, { run = 'a_run', from = '127.0.0.1', more = {} } = {}): Promise<Reply> {
  const body = JSON.stringify({
    model: stubModel,
    messages: [{ role: 'user', content: [{ type: 'text', text }] }],
    ...more,
  });
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'x-run-name': run };
    const sent = httpRequest(`${url}/chat/completions`, { method: 'POST', headers, localAddress: from }, (reply) => {
      let read = '';
      reply.setEncoding('utf8').on('data', (piece) => (read += piece));
      reply.on('end', () => resolve({ status: reply.statusCode ?? 0, headers: reply.headers, body: read }));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const unfitOr =
  (otherwise: Behaviour): Behave =>
  ({ text }) =>
    text.startsWith('unfit') ? openAiError(500, 'cannot identify image file') : otherwise;

describe('unfit requests', () => {
  it.each([
    [5, 1],
    [5, 2],
    [50, 1],
    [50, 2],
  ])('%i of them take none of %i judges from a run beside them', async (count, judges) => {
    const stubs = await Promise.all(Array.from({ length: judges }, () => judge(unfitOr(scoresText(7, 8)))));
    const running = await gateway(stubs);
    // One after another, with nothing between them that goes well.
    for (let i = 0; i < count; i++) expect((await ask(running, `unfit ${i}`, { run: 'attacker' })).status).toBe(500);
    const innocent = new Set([(await ask(running, 'fit', { run: 'innocent' })).status]);
    const attack = Promise.all(
      Array.from({ length: count }, async (_, i) => (await ask(running, `unfit too ${i}`)).status),
    );
    let over = false;
    void attack.finally(() => (over = true)).catch(() => undefined);
    for (let i = 0; i < 3 || !over; i++) innocent.add((await ask(running, `fit ${i}`, { run: 'innocent' })).status);
    expect(new Set(await attack)).toEqual(new Set([500]));
    expect([...innocent]).toEqual([200]);
    expect((await health(running)).upstreams.map(({ state }) => state)).toEqual(stubs.map(() => 'ready'));
  });
});

describe('turns', () => {
  /** The share of the turns that an innocent run gets, which asks for two at a time, while others ask for 30 at a time. */
  async function shareBeside(
    attacker: (request: number) => { readonly run: string; readonly from?: string },
  ): Promise<number> {
    const served: string[] = [];
    const stub = await judge(async ({ text }) => {
      served.push(text);
      await new Promise((resolve) => setTimeout(resolve, 2));
      return scoresText(7, 8);
    });
    const running = await gateway([stub], { maxConcurrency: 1 });
    let over = false;
    let request = 0;
    const attack = Array.from({ length: 30 }, async () => {
      while (!over) await ask(running, 'attack', attacker(request++));
    });
    await until(async () => (await health(running)).waiting > 20);
    served.length = 0;
    await Promise.all(
      [1, 2].map(async () => {
        for (let i = 0; i < 20; i++) await ask(running, 'innocent', { run: 'innocent' });
      }),
    );
    over = true;
    const all = served.lastIndexOf('innocent') + 1;
    await Promise.all(attack);
    return 40 / all;
  }

  it('are no more for one who comes from many addresses of this machine', async () => {
    const many = (request: number) => ({ run: 'attacker', from: `127.0.1.${(request % 30) + 1}` });
    expect(await shareBeside(many)).toBeGreaterThan(0.35);
  });

  it('are left for others where one fills the queue', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const stub = await judge(async ({ text }) => {
      if (text !== 'before') await held;
      return scoresText(7, 8);
    });
    const running = await gateway([stub], { maxConcurrency: 1, maxWaiting: 10 });
    await ask(running, 'before', { run: 'innocent' });
    let refused = 0;
    const greedy = Array.from({ length: 30 }, async () => {
      const { status } = await ask(running, 'x', { run: 'greedy' });
      refused += Number(status === 429);
    });
    await until(async () => (await health(running)).waiting === 10);
    const innocent = ask(running, 'y', { run: 'innocent' });
    await until(() => refused === 20);
    release();
    expect((await innocent).status).toBe(200);
    await Promise.all(greedy);
    expect(refused).toBe(20);
  });
});

describe('a reply', () => {
  it('keeps what a caller can use of its headers, and nothing else', async () => {
    const headers = {
      'x-request-id': 'req_7',
      'openai-processing-ms': '12',
      'x-ratelimit-remaining-requests': '3',
      'retry-after': '9',
      'set-cookie': 'session=1',
      server: 'uvicorn',
    };
    const stub = await judge(() => ({ kind: 'json', status: 429, body: { error: { message: 'slow' } }, headers }));
    const reply = await ask(await gateway([stub]), 'x');
    expect(reply.headers).toMatchObject({
      'x-request-id': 'req_7',
      'openai-processing-ms': '12',
      'x-ratelimit-remaining-requests': '3',
      'retry-after': '9',
    });
    expect([reply.headers['set-cookie'], reply.headers['server']]).toEqual([undefined, undefined]);
    const page = await judge(() => ({ kind: 'raw', status: 404, contentType: 'text/html', body: '<p>no</p>' }));
    const found = await ask(await gateway([page]), 'x');
    expect([found.headers['content-type'], found.body]).toEqual(['text/html', '<p>no</p>']);
  });
});
