import { afterAll, afterEach, describe, expect, it } from 'vitest';
import type { RequestListener, ServerResponse } from 'node:http';
import type { RgbImage } from '../../../../src/core/images/image.js';
import type { Clock } from '../../../../src/core/clock.js';
import { MemoryJudgementStore } from '../../judge/memory_store.js';
import { RewardPool, type RewardPoolOptions } from '../../../../src/rewards/server/client/pool.js';
import { remote } from '../../../../src/rewards/terms/remote.js';
import type { JudgeItem, Outcome } from '../../../../src/rewards/score/types.js';
import { byPicture, fingerprint, place, readsAndJudges, rewardOf } from '../served.js';
import { listening, type Listening } from '../../../support/stub_server.js';
import { termContract, wholeItem } from '../../terms/term_contract.js';
import { testServices } from '../../terms/term_services.js';

const here = place();
const pools: RewardPool[] = [];
const stubs: Listening[] = [];
afterEach(async () => {
  await Promise.all(pools.splice(0).map((pool) => pool.close()));
  for (const stub of stubs.splice(0)) await stub.close();
  await here.close();
});

function poolOf(servers: readonly string[], options: Partial<RewardPoolOptions> = {}): RewardPool {
  const pool = new RewardPool({ servers, random: () => 0.01, ...options });
  pools.push(pool);
  return pool;
}

async function stub(answer: RequestListener): Promise<string> {
  const stub = await listening(answer);
  stubs.push(stub);
  return stub.url;
}

/** An image whose fingerprint is the number. */
function numbered(number: number): RgbImage {
  const data = new Uint8Array(8 * 8 * 3).fill(7);
  data.set([0, number >> 8, number & 255]);
  return { width: 8, height: 8, data };
}

const items: readonly JudgeItem[] = Array.from({ length: 500 }, (_, i) =>
  wholeItem({ key: `1/${i}`, edited: numbered(i), source: numbered(1000 + (i >> 3)), truth: null }),
);

/** Time limits that `pausesPass` never reaches. */
const endless = { attemptTimeoutMs: 1e9, itemTimeoutMs: 1e9 };

/** A clock whose pauses are over at once, and move it on; limits of a day are never reached. */
function pausesPass(): Clock & { ms: number } {
  const clock = {
    ms: 0,
    now: () => clock.ms,
    after: (milliseconds: number, callback: () => void) => {
      if (milliseconds >= 86_400_000) return () => undefined;
      const timer = setImmediate(() => {
        clock.ms += milliseconds;
        callback();
      });
      return () => clearImmediate(timer);
    },
  };
  return clock;
}

const one = rewardOf({ seen: { weight: 1, score: byPicture('seen') } });

function expectOwnScores(outcomes: readonly Outcome[]): void {
  for (const [i, outcome] of outcomes.entries()) {
    const seen = fingerprint(numbered(i));
    expect(outcome).toEqual({
      kind: 'scored',
      value: seen,
      normalised: seen,
      parts: { 'seen/seen': seen, 'seen/normalised': seen },
    });
  }
}

describe('a pool of reward servers', () => {
  it('gives what the servers weigh, with their parts', async () => {
    const { url } = await here.start(readsAndJudges);
    const pool = poolOf([`${url}/`]);
    await pool.ready(5_000);
    const seen = fingerprint(numbered(5));
    expect(await pool.score(items[5])).toEqual({
      kind: 'scored',
      value: 0.6 * seen + 0.2 * seen,
      normalised: 0.6 * seen + 0.2 * seen,
      parts: {
        'ocr_confidence/seen': seen,
        'ocr_confidence/normalised': seen,
        'align_quality/seen': seen / 2,
        'align_quality/normalised': seen / 2,
      },
    });
  });

  it('weights the terms itself if the settings say so', async () => {
    const { url } = await here.start(readsAndJudges);
    const pool = poolOf([url], { weights: { align_quality: 0.9, ocr_confidence: 0.1 } });
    await pool.ready(5_000);
    const seen = fingerprint(numbered(200));
    const outcome = await pool.score(items[200]);
    expect(outcome.kind === 'scored' && outcome.value).toBeCloseTo(0.45 * seen + 0.1 * seen, 12);
  });

  it('loses and mixes up nothing when one of two servers dies midway', async () => {
    const answered = { healthy: 0, dying: 0 };
    const healthy = await here.start(
      rewardOf({
        seen: {
          weight: 1,
          score: (item) => {
            answered.healthy++;
            return byPicture('seen')(item);
          },
        },
      }),
    );
    let die = (): void => undefined;
    const dying = await here.start(
      rewardOf({
        seen: {
          weight: 1,
          score: (item) => {
            if (++answered.dying === 60) die();
            // What it had in flight is never answered.
            return answered.dying > 50 ? new Promise(() => undefined) : byPicture('seen')(item);
          },
        },
      }),
      { limits: { drainTimeoutMs: 0 } },
    );
    die = () => void dying.close();
    const pool = poolOf([dying.url, healthy.url], { concurrency: 32 });
    const outcomes = await Promise.all(items.map((item) => pool.score(item)));
    expect(answered.dying).toBeGreaterThanOrEqual(60);
    expect(answered.healthy).toBeGreaterThanOrEqual(440);
    expectOwnScores(outcomes);
  });

  it('takes no server from other items for those that it cannot score, unless it cannot score any', async () => {
    let unfit = 0;
    const url = await stub((_request, reply) => {
      if (unfit-- > 0) reply.writeHead(500).end();
      else answerWith(reply, {});
    });
    const pool = poolOf([url], { clock: pausesPass(), ...endless, maxAttempts: 1, concurrency: 8 });
    const ask = async (count: number): Promise<void> => {
      unfit = count;
      for (const item of items.slice(1, 1 + count)) {
        expect(await pool.score(item)).toMatchObject({ kind: 'unscored', reason: 'server_error' });
      }
    };
    await ask(7);
    expect((await pool.score(items[0])).kind).toBe('scored');
    await ask(8);
    expect(await pool.score(items[0])).toMatchObject({ kind: 'unscored', reason: 'connection' });
  });

  it('waits for servers that have too much to do, and overloads none', async () => {
    let underWay = 0;
    let most = 0;
    const { url } = await here.start(
      rewardOf({
        seen: {
          weight: 1,
          score: async (item) => {
            most = Math.max(most, ++underWay);
            await new Promise((resolve) => setTimeout(resolve, 2));
            underWay--;
            return byPicture('seen')(item);
          },
        },
      }),
      { limits: { requests: 3 } },
    );
    const pool = poolOf([url], { concurrency: 8 });
    expectOwnScores(await Promise.all(items.slice(0, 8).map((item) => pool.score(item))));
    expect(most).toBeLessThanOrEqual(3);
  });

  it('is unscored, never a number, when no one answers', async () => {
    const pool = poolOf(['http://127.0.0.1:9', 'http://127.0.0.1:1']);
    const outcomes = await Promise.all(items.slice(0, 10).map((item) => pool.score(item)));
    for (const outcome of outcomes) expect(outcome).toMatchObject({ kind: 'unscored', reason: 'connection' });
  });

  it.each<[string, RequestListener, string]>([
    ['an error', (_q, reply) => reply.writeHead(500).end('{"error":{"message":"broken"}}'), 'broken'],
    [
      'a page',
      (_q, reply) => reply.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
      "not a reward server's reply",
    ],
    ['another item', (_q, reply) => answerWith(reply, { key: 'other' }), 'another item'],
    ['a score outside the scale', (_q, reply) => answerWith(reply, { normalised: 1.5 }), "not a reward server's reply"],
    ['a score that is none', (_q, reply) => answerWith(reply, { normalised: null }), "not a reward server's reply"],
    ['too many lines', (_q, reply) => answerWith(reply, {}, 2), "not a reward server's reply"],
    [
      'half a reply',
      (_q, reply) => reply.writeHead(200, { 'content-length': 500 }).write('{"rew', () => reply.destroy()),
      '',
    ],
    ['other settings', (_q, reply) => answerWith(reply, { reward: 'another' }), 'other settings'],
    ['a refused token', (_q, reply) => reply.writeHead(401).end('{"error":{"message":"no"}}'), 'HTTP 401'],
  ])('turns to the next server after %s', async (_what, answer, detail) => {
    const good = await here.start(one);
    const bad = await stub(answer);
    const pool = poolOf([bad, good.url]);
    // The first to say what it scores with is the good one.
    await pool.ready(0);
    expectOwnScores([await pool.score(items[0])]);
    const alone = await poolOf([bad], { maxAttempts: 2 }).score(items[0]);
    if (detail === 'other settings') return;
    expect(alone).toMatchObject({ kind: 'unscored', parts: {} });
    expect(alone.kind === 'unscored' && alone.detail).toContain(detail);
  });

  it('does not ask everyone about a request that is itself at fault', async () => {
    let asked = 0;
    const refuse: RequestListener = (_request, reply) => {
      asked++;
      reply.writeHead(413).end('{"error":{"message":"too large"}}');
    };
    const pool = poolOf([await stub(refuse), await stub(refuse)]);
    expect(await pool.score(items[0])).toMatchObject({ kind: 'unscored', reason: 'bad_request' });
    expect(asked).toBe(1);
  });

  it('never shows its token', async () => {
    const token = 'a-token-of-the-test';
    const echo = await stub((request, reply) => reply.writeHead(500).end(`you sent ${request.headers.authorization}`));
    const pool = poolOf([echo], { token, maxAttempts: 1 });
    const outcome = await pool.score(items[0]);
    expect(JSON.stringify(outcome)).toContain('you sent Bearer');
    expect(JSON.stringify(outcome)).not.toContain(token);
    const { url } = await here.start(one, { token });
    const right = poolOf([url], { token });
    await right.ready(0);
    expect((await right.score(items[0])).kind).toBe('scored');
    await expect(poolOf([url], { token: 'another-token-of-it' }).ready(0)).rejects.toThrow('token rejected');
    const broken = (): unknown => poolOf([url], { token: `${token}\nand more` });
    expect(broken).toThrow('HTTP headers cannot carry');
    expect(broken).not.toThrow(token);
  });
});

describe('readiness', () => {
  it('says who is not ready', async () => {
    await expect(poolOf(['http://127.0.0.1:9']).ready(0)).rejects.toThrow(
      'no reward server is ready: http://127.0.0.1:9',
    );
    const page = await stub((_request, reply) => reply.end('<html>'));
    await expect(poolOf([page]).ready(60_000)).rejects.toThrow('not a reward server');
  });

  it('rejects servers that score otherwise, or lack a term', async () => {
    const [a, b] = [
      await here.start(one),
      await here.start(rewardOf({ x: { weight: 1, score: byPicture('x') } }, 'other')),
    ];
    await expect(poolOf([a.url, b.url]).ready(0)).rejects.toThrow('have different settings: seen');
    await expect(poolOf([a.url], { weights: { x: 1 } }).ready(0)).rejects.toThrow("no term 'x'; available: seen");
  });
});

describe('records', () => {
  it('gives a resumed run what it was given before, without a server', async () => {
    const store = new MemoryJudgementStore();
    const server = await here.start(readsAndJudges);
    const before = await Promise.all(
      items.slice(0, 20).map((item) => poolOf([server.url], { store: () => store }).score(item)),
    );
    await server.close();
    const resumed = poolOf([server.url], { store: () => store });
    expect(await Promise.all(items.slice(0, 20).map((item) => resumed.score(item)))).toEqual(before);
    expect(store.all()[0]).toMatchObject({ model: 'digest-of-the-test', problem: null, attempts: 1 });
    expect(store.all().map(({ key }) => key)).toContain('1/7/remote');
    // Another image under the same key is another question.
    expect((await resumed.score({ ...items[0], edited: numbered(77) })).kind).toBe('unscored');
  });
});

describe('the term remote', () => {
  it('waits for its servers, and reports it if none comes', async () => {
    const fields = { endpoint: 'http://127.0.0.1:9', wait_s: 0 };
    const { z } = await import('zod');
    const schema = z.strictObject(remote.fields);
    await expect(remote.create(schema.parse(fields), testServices())).rejects.toThrow('no reward server is ready');
    expect(schema.safeParse({ endpoint: 'x', terms: { a: 0.6, b: 0.6 } }).success).toBe(false);
    const { url } = await here.start(readsAndJudges);
    const term = await remote.create(
      schema.parse({ endpoint: [url], terms: { ocr_confidence: 0.6, align_quality: 0.4 } }),
      testServices(),
    );
    expect((await term.score(items[3])).kind).toBe('scored');
    await term.close();
  });
});

const served = place();
afterAll(() => served.close());
termContract('remote', async () => {
  const server = served.servers.at(0) ?? (await served.start(readsAndJudges));
  return new RewardPool({ servers: [server.url] });
});

/** Sends a whole reply about the first item, but for what a server may get wrong. */
function answerWith(
  reply: ServerResponse,
  wrong: { key?: string; normalised?: number | null; reward?: string },
  count = 1,
): void {
  const { key = items[0].key, normalised = 0.5, reward = 'digest-of-the-test' } = wrong;
  const outcome = { kind: 'scored', value: 0.5, normalised, parts: {}, reason: null, detail: null };
  reply.setHeader('x-editrl-reward', reward);
  reply.end(`${JSON.stringify({ key, outcome, terms: {} })}\n`.repeat(count));
}
