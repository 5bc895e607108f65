/** Looking, in the middle of a run, whether reward servers can still be asked. */
import { afterEach, describe, expect, it } from 'vitest';
import { RewardPool } from '../../../../src/rewards/server/client/pool.js';
import { byPicture, place, rewardOf } from '../served.js';

const token = 'token-of-the-test';
const here = place();
const pools: RewardPool[] = [];
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
  await here.close();
});

const reward = (digest?: string): Parameters<typeof here.start>[0] =>
  rewardOf({ seen: { weight: 1, score: byPicture('seen') } }, digest);

async function readyPool(servers: readonly string[], theToken = token): Promise<RewardPool> {
  const pool = new RewardPool({ servers, token: theToken });
  pools.push(pool);
  await pool.ready(0);
  return pool;
}

describe('the canary of a pool', () => {
  it('passes while one server is ready', async () => {
    const { url } = await here.start(reward(), { token });
    const pool = await readyPool([url, 'http://127.0.0.1:9']);
    expect(await pool.canary()).toEqual({ ok: true });
  });

  it.each<readonly [string, { readonly token: string; readonly digest?: string } | null, RegExp]>([
    ['is gone', null, /ECONNREFUSED/],
    ['takes another token', { token: 'a-rotated-token-of-the-test' }, /token rejected/],
    ['scores with other settings', { token, digest: 'other' }, /settings of the reward servers have changed/],
  ])('reports it where the server %s', async (_what, later, found) => {
    const first = await here.start(reward(), { token });
    const pool = await readyPool([first.url]);
    const port = Number(new URL(first.url).port);
    await here.close();
    if (later !== null) await here.start(reward(later.digest), { token: later.token, port });
    const looked = await pool.canary();
    expect(looked).toEqual({ ok: false, detail: expect.stringMatching(found) as string });
    // It still knows what it scored with: a server with other settings is never taken for the same one.
    expect(await pool.canary()).toEqual(looked);
  });

  it('asks for the judge behind the servers, which the start does not', async () => {
    let away: string | null = 'HTTP 403 for the key';
    let asked = 0;
    const judged = {
      ...reward(),
      canary: async () => {
        asked++;
        return away === null ? ({ ok: true } as const) : ({ ok: false, detail: away } as const);
      },
    };
    const { url } = await here.start(judged, { token });
    const pool = await readyPool([url]);
    expect(asked).toBe(0);
    expect(await pool.canary()).toEqual({
      ok: false,
      detail: expect.stringContaining('its judge does not answer: HTTP 403 for the key') as string,
    });
    away = null;
    expect(await pool.canary()).toEqual({ ok: true });
    // Whoever has no token learns nothing, and puts no question to the judge.
    expect(await (await fetch(`${url}/health?judge`)).json()).toEqual({ status: 'ok' });
    expect(asked).toBe(2);
  });
});
