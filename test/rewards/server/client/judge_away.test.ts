/** Servers of a pool that work while the judge behind one of them does not. */
import { afterEach, describe, expect, it } from 'vitest';
import { MemoryJudgementStore } from '../../judge/memory_store.js';
import { RewardPool, type RewardPoolOptions } from '../../../../src/rewards/server/client/pool.js';
import type { JudgeItem, Outcome, UnscoredReason } from '../../../../src/rewards/score/types.js';
import { byPicture, place, rewardOf, type ScoreTerm } from '../served.js';
import { imageOf, wholeItem } from '../../terms/term_contract.js';

const here = place();
const pools: RewardPool[] = [];
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
  await here.close();
});

const items: readonly JudgeItem[] = Array.from({ length: 40 }, (_, i) =>
  wholeItem({ key: `1/${i}`, edited: imageOf(i) }),
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
  const pool = new RewardPool({ servers: urls, random: () => 0.01, ...options });
  pools.push(pool);
  return pool;
}

describe('a pool with a server whose judge is unreachable', () => {
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

  it('takes the unscored outcome, with what was obtained, once every server was asked', async () => {
    const servers = await Promise.all([1, 2, 3].map(() => server(() => unscored('connection'))));
    const store = new MemoryJudgementStore();
    const outcome = await poolOf(servers, { store: () => store }).score(items[3]);
    expect(outcome).toMatchObject({ kind: 'unscored', reason: 'connection', detail: 'judged: it is connection' });
    expect(Object.keys(outcome.parts)).toContain('pixels/seen');
    expect(servers.map(({ asked }) => asked())).toEqual([1, 1, 1]);
    expect(store.all()).toMatchObject([{ problem: 'connection', attempts: 3 }]);
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
});
