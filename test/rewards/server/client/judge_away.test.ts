/** Servers of a pool that work while the judge behind one of them does not. */
import { afterEach, describe, expect, it } from 'vitest';
import { MemoryJudgementStore } from '../../../../src/rewards/judge/memory_store.js';
import { RewardPool, type RewardPoolOptions } from '../../../../src/rewards/server/client/pool.js';
import type { JudgeItem, Outcome, UnscoredReason } from '../../../../src/rewards/score/types.js';
import { listening } from '../../../support/stub_server.js';
import { byPicture, place, rewardOf, type ScoreTerm } from '../served.js';
import { pictureOf, wholeItem } from '../../terms/term_contract.js';

const here = place();
const pools: RewardPool[] = [];
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
  await here.close();
});

const items: readonly JudgeItem[] = Array.from({ length: 40 }, (_, i) =>
  wholeItem({ key: `1/${i}`, edited: pictureOf(i) }),
);

const unscored = (reason: UnscoredReason): Outcome => ({
  kind: 'unscored',
  reason,
  detail: `it is ${reason}`,
  parts: {},
});

interface Counted {
  readonly url: string;
  readonly asked: () => number;
}

/** A server whose reward has one judged term beside one that needs no judge. */
async function server(judged: ScoreTerm): Promise<Counted> {
  let asked = 0;
  const score: ScoreTerm = (item, signal) => {
    asked++;
    return judged(item, signal);
  };
  const reward = rewardOf({ pixels: { weight: 0.5, score: byPicture('pixels') }, judged: { weight: 0.5, score } });
  const { url } = await here.start(reward);
  return { url, asked: () => asked };
}

const good = (): Promise<Counted> => server(byPicture('judged'));

function poolOf(servers: readonly Counted[], options: Partial<RewardPoolOptions> = {}): RewardPool {
  const urls = servers.map(({ url }) => url);
  const pool = new RewardPool({ servers: urls, routing: 'round_robin', random: () => 0.01, ...options });
  pools.push(pool);
  return pool;
}

describe('a pool with a server whose judge is away', () => {
  it.each<UnscoredReason>(['timeout', 'connection', 'rate_limited', 'server_error', 'aborted'])(
    'asks the next one after %s',
    async (reason) => {
      const [bad, other] = [await server(() => unscored(reason)), await good()];
      const store = new MemoryJudgementStore();
      const pool = poolOf([bad, other], { store: () => store });
      expect((await pool.score(items[0])).kind).toBe('scored');
      expect([bad.asked(), other.asked()]).toEqual([1, 1]);
      expect(store.all()).toMatchObject([{ problem: null, attempts: 2 }]);
    },
  );

  it.each<UnscoredReason>(['bad_request', 'unparsable', 'truncated', 'refused', 'empty', 'out_of_range'])(
    'takes %s for an answer: another judge would say the same',
    async (reason) => {
      const [bad, other] = [await server(() => unscored(reason)), await good()];
      expect(await poolOf([bad, other]).score(items[0])).toMatchObject({ kind: 'unscored', reason });
      expect([bad.asked(), other.asked()]).toEqual([1, 0]);
    },
  );

  it('looks at the terms that it weighs, no others', async () => {
    const [bad, other] = [await server(() => unscored('timeout')), await good()];
    const pool = poolOf([bad, other], { weights: { pixels: 1 } });
    expect((await pool.score(items[0])).kind).toBe('scored');
    expect(other.asked()).toBe(0);
  });

  it('takes the unscored outcome, with what was obtained, once every server was asked', async () => {
    const servers = await Promise.all([1, 2, 3].map(() => server(() => unscored('connection'))));
    const store = new MemoryJudgementStore();
    const outcome = await poolOf(servers, { store: () => store }).score(items[3]);
    expect(outcome).toMatchObject({ kind: 'unscored', reason: 'connection', detail: 'judged: it is connection' });
    expect(Object.keys(outcome.parts)).toContain('pixels/seen');
    expect(servers.map(({ asked }) => asked())).toEqual([1, 1, 1]);
    expect(store.all()).toMatchObject([{ problem: 'connection', attempts: 3 }]);
  });

  it('takes it too where the others are down, after one try at each', async () => {
    const bad = await server(() => unscored('timeout'));
    const down = { url: 'http://127.0.0.1:9', asked: () => 0 };
    const pool = poolOf([bad, down, { ...down, url: 'http://127.0.0.1:1' }], { maxAttempts: 50 });
    expect(await pool.score(items[0])).toMatchObject({ kind: 'unscored', reason: 'timeout' });
    expect(bad.asked()).toBe(1);
  });

  it('takes it when the time of the item is over', async () => {
    const [bad, silent] = [
      await server(() => unscored('rate_limited')),
      await server(() => new Promise(() => undefined)),
    ];
    const pool = poolOf([bad, silent], { itemTimeoutMs: 300, attemptTimeoutMs: 60_000 });
    expect(await pool.score(items[0])).toMatchObject({ kind: 'unscored', reason: 'rate_limited' });
    expect([bad.asked(), silent.asked()]).toEqual([1, 1]);
  });

  it('asks it after the others once it has failed three times, and as before when its judge is back', async () => {
    let away = true;
    let now = 0;
    const bad = await server((item) => (away ? unscored('connection') : byPicture('judged')(item)));
    const other = await good();
    const clock = { now: () => now, after: () => () => undefined };
    const pool = poolOf([bad, other], { clock });
    for (const item of items.slice(0, 20)) expect((await pool.score(item)).kind).toBe('scored');
    expect([bad.asked(), other.asked()]).toEqual([3, 20]);
    away = false;
    now += 11_000;
    for (const item of items.slice(20)) expect((await pool.score(item)).kind).toBe('scored');
    expect(bad.asked()).toBeGreaterThan(10);
  });

  it('still asks it where it is the only one left', async () => {
    const bad = await server(() => unscored('connection'));
    const pool = poolOf([bad]);
    for (const item of items.slice(0, 5)) {
      expect(await pool.score(item)).toMatchObject({ kind: 'unscored', reason: 'connection' });
    }
    expect(bad.asked()).toBe(5);
  });

  it('waits for the other one where that has too much to do', async () => {
    const bad = await server(() => unscored('connection'));
    const outcome = { kind: 'scored', value: 0.5, normalised: 0.5, parts: {}, reason: null, detail: null };
    const reply = { reward: 'digest-of-the-test', items: [{ key: items[0].key, outcome, terms: {} }] };
    let asked = 0;
    const busy = await listening((request, response) => {
      request.resume();
      if (++asked === 1) response.writeHead(429, { 'retry-after': '1' }).end();
      else response.end(JSON.stringify(reply));
    });
    try {
      const pool = poolOf([bad, { url: busy.url, asked: () => asked }]);
      expect(await pool.score(items[0])).toMatchObject({ kind: 'scored', value: 0.5 });
      expect([bad.asked(), asked]).toEqual([1, 2]);
    } finally {
      await busy.close();
    }
  });
});
