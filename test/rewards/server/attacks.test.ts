/** The reward server as a running server, asked by clients that mean it ill. */
import { afterEach, describe, expect, it } from 'vitest';
import type { Outcome } from '../../../src/rewards/score/types.js';
import { rawStatus, until } from '../../core/http/client.js';
import { imageOf } from '../terms/term_contract.js';
import { base64Of, place, post, postJson, readsAndJudges, rewardOf } from './served.js';

const here = place();
afterEach(() => here.close());

const scored: Outcome = { kind: 'scored', value: 1, normalised: 1, parts: {} };

describe('web pages', () => {
  it.each([
    ['under a name that leads here', 'host: evil.com', 403],
    ['of another origin', 'host: 127.0.0.1\r\norigin: null', 403],
    ['by an image or a script', 'host: 127.0.0.1\r\nsec-fetch-site: cross-site', 403],
    ['not at all', 'host: 127.0.0.1', 200],
  ])('that ask %s: %i, and cost no completion', async (_what, head, status) => {
    let asked = 0;
    const canary = () => {
      asked++;
      return Promise.resolve({ ok: true } as const);
    };
    const { url } = await here.start({ ...readsAndJudges, canary });
    expect(await rawStatus(url, ['GET /health?judge HTTP/1.1', head])).toBe(status);
    expect(asked).toBe(status === 200 ? 1 : 0);
  });
});

it('an address that is none is not found', async () => {
  const { url } = await here.start(readsAndJudges);
  expect(await rawStatus(url, ['GET // HTTP/1.1', 'host: localhost'])).toBe(404);
});

describe('memory', () => {
  it('is not filled by images that decode to much more than they are', async () => {
    const waiting: (() => void)[] = [];
    let most = 0;
    const reward = rewardOf({
      a: { weight: 1, score: () => new Promise<Outcome>((resolve) => waiting.push(() => resolve(scored))) },
    });
    const side = 200;
    const image = await base64Of({ width: side, height: side, data: new Uint8Array(side * side * 3) });
    const perItem = 2 * side * side * 3;
    const { url } = await here.start(reward, { limits: { decodedBytes: 3.5 * perItem } });
    let left = 12;
    const requests = Array.from({ length: 3 }, () =>
      postJson(url, { items: Array.from({ length: 4 }, () => ({ prompt: 'a', image, source: image })) }),
    );
    while (left > 0) {
      await until(() => waiting.length > 0);
      // Whoever else could begin has begun by then.
      await new Promise((resolve) => setTimeout(resolve, 30));
      most = Math.max(most, waiting.length);
      left -= waiting.length;
      for (const go of waiting.splice(0)) go();
    }
    expect(most).toBe(3);
    for (const { status } of await Promise.all(requests)) expect(status).toBe(200);
  });

  it('takes an image that alone is more than may be decoded at once', async () => {
    const { url } = await here.start(readsAndJudges, { limits: { decodedBytes: 10 } });
    const { body } = await postJson(url, { prompt: 'a', image: await base64Of(imageOf(1)) });
    expect(body['outcome']).toMatchObject({ kind: 'scored' });
  });

  it('is not filled by tiny values', async () => {
    const { url } = await here.start(readsAndJudges);
    const refused = await post(url, `{"prompt":[${'0,'.repeat(300_000)}0]}`);
    expect(refused).toMatchObject({ status: 400, body: { error: { type: 'BadRequestError' } } });
    expect(refused.body.error?.message).toContain('more than 100000 values');
  });
});
