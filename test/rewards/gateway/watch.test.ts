/** What a look at an upstream that serves makes of it. */
import { startGateway } from './gateway_place.js';
import { afterEach, expect, it } from 'vitest';
import { Upstream } from '../../../src/rewards/gateway/upstream.js';
import { ManualClock, settle } from '../../core/manual_clock.js';
import { until } from '../../core/http/client.js';
import { openAiError, scoresText, startStubJudge, stubModel, type Behaviour } from '../judge/stub_judge.js';

const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

it.each([
  ['stays where it turns the look away', openAiError(429, 'too many requests'), 200],
  ['is closed where the look finds it broken', openAiError(500, 'the engine is dead'), 503],
] as const)('a suspected upstream %s', async (_what, duringLook: Behaviour, status) => {
  let looks = 0;
  const stub = await startStubJudge(({ text }) => {
    if (text.startsWith('This is a check')) return looks++ === 0 ? { kind: 'text', text: 'fine' } : duringLook;
    return text === 'innocent' ? scoresText(7, 8) : openAiError(500, 'cannot take this');
  });
  opened.push(stub.close);
  const running = await startGateway({ upstreams: [stub.url], model: stubModel, port: 0 });
  opened.push(() => running.close());
  await running.ready;
  const post = async (text: string): Promise<number> => {
    const reply = await fetch(`${running.url}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: stubModel, messages: [{ role: 'user', content: [{ type: 'text', text }] }] }),
    });
    await reply.arrayBuffer();
    return reply.status;
  };
  for (let i = 0; i < 5; i++) expect(await post(`unfit ${i}`)).toBe(500);
  // The look after the one that was turned away, too: each has been dealt with when the next one begins.
  await until(() => looks >= 3);
  for (let i = 0; i < 5; i++) expect(await post('innocent')).toBe(status);
});

/** A watch over an upstream that passes every look, in a world whose time is stepped. */
async function suspicious() {
  const clock = new ManualClock();
  const stop = new AbortController();
  const looks: number[] = [];
  const upstream = new Upstream('http://judge/v1', {
    clock,
    cap: 8,
    breakerFailures: 5,
    check: () => {
      looks.push(clock.now());
      return Promise.resolve({ state: 'ready', maxModelLen: null, models: [] });
    },
    onChange: () => undefined,
    log: () => undefined,
  });
  const ended = upstream.watch(stop.signal);
  opened.push(() => {
    stop.abort();
    return ended;
  });
  let request = 0;
  /** So many requests fail that may be at fault themselves, each another one. */
  const fail = async (times: number, health: 'unsure' | 'fails' = 'unsure'): Promise<void> => {
    for (let i = 0; i < times; i++) upstream.start()({ load: 'nothing', health, request: request++ });
    await settle();
  };
  await settle();
  return { clock, looks, upstream, fail };
}

it('an upstream that passes its checks is not checked again for each row of failures', async () => {
  const { clock, looks, fail } = await suspicious();
  expect(looks).toEqual([0]);
  // Twenty failures every 100 ms for a minute, which are 2,400 rows.
  for (let at = 0; at < 600; at++) {
    await fail(20);
    await clock.pass(100);
  }
  // At once, after 1, 2, 4 and 8 s, then every 10 s.
  expect(looks).toEqual([0, 0, 1000, 3000, 7000, 15_000, 25_000, 35_000, 45_000, 55_000]);
  // The last suspicion is looked into when it is due; left in peace for a while, it is looked at as soon as it is suspected.
  await clock.pass(60_000);
  await fail(5);
  expect(looks.at(-1)).toBe(120_000);
  expect(looks).toHaveLength(12);
});

it('an upstream whose circuit opens between two checks is checked at once', async () => {
  const { clock, looks, fail } = await suspicious();
  await fail(5);
  await clock.pass(100);
  await fail(5);
  expect(looks).toEqual([0, 0]);
  await fail(5, 'fails');
  expect(looks).toEqual([0, 0, 100]);
});
