/** Reward servers of Calligrapher's training in a pool: a stub that speaks their protocol, failures included. */
import { afterEach, describe, expect, it } from 'vitest';
import { encodePng, decodeImage, type RgbImage } from '../../../../src/core/images/image.js';
import { RewardPool } from '../../../../src/rewards/server/client/pool.js';
import type { JudgeItem, Judgement } from '../../../../src/rewards/score/types.js';
import { remote } from '../../../../src/rewards/terms/remote.js';
import { listening, send } from '../../../support/stub_server.js';

const terms = { ocr_confidence: 0.75, vlm_score: 0.25 };
const picture: RgbImage = { width: 2, height: 1, data: Uint8Array.of(1, 2, 3, 4, 5, 6) };
const mask: RgbImage = { width: 2, height: 1, data: Uint8Array.of(0, 0, 0, 255, 255, 255) };
const item: JudgeItem = {
  key: '7/0',
  instruction: "The text is 'Delia'",
  source: picture,
  edited: picture,
  truth: null,
  mask,
  finished: true,
};

/** A body as FastAPI sends it, with its status. */
type Reply = readonly [status: number, body: unknown];

/** What a handler gives that returns `({"error": …}, 500)`: FastAPI makes a list of the pair, under status 200. */
const caught = (error: string): Reply => [200, [{ error }, 500]];
const scored = (vlm: number, ocr: number): Reply => [200, { vlm_score: vlm, ocr_text: 'Delia', ocr_confidence: ocr }];

const open: { close: () => unknown }[] = [];
afterEach(() => Promise.all(open.splice(0).map((each) => each.close())));

/** A server whose model has the fields image and prompt (required), mask and timestep; each request that is whole gets the next reply. */
async function start(replies: readonly Reply[]): Promise<{ readonly url: string; readonly asked: object[] }> {
  const asked: object[] = [];
  const server = await listening((request, response) => {
    if (request.url !== '/score') return send(response, 404, { detail: 'Not Found' });
    if (request.method !== 'POST') return send(response, 405, { detail: 'Method Not Allowed' });
    let text = '';
    request.on('data', (part: Buffer) => (text += part.toString()));
    request.on('end', () => {
      const body = JSON.parse(text) as Record<string, unknown>;
      const missing = ['image', 'prompt'].filter((name) => typeof body[name] !== 'string');
      const detail = missing.map((name) => ({
        type: 'missing',
        loc: ['body', name],
        msg: 'Field required',
        input: body,
      }));
      if (missing.length > 0) return send(response, 422, { detail });
      send(response, ...replies[Math.min(asked.length, replies.length - 1)]);
      asked.push(body);
    });
  });
  open.push(server);
  return { url: `${server.url}/score`, asked };
}

function poolOf(servers: readonly string[], stored: Judgement[] = []): RewardPool {
  const store = {
    find: (key: string) => stored.find((each) => each.key === key),
    put: (one: Judgement) => stored.push(one),
  };
  const pool = new RewardPool({
    servers,
    weights: terms,
    protocol: 'calligrapher',
    maxAttempts: 3,
    store: () => store,
    random: () => 0,
  });
  open.unshift(pool);
  return pool;
}

describe('a pool of Calligrapher reward servers', () => {
  it('is sent picture, prompt and mask, and weighs the two scores of the reply', async () => {
    const { url, asked } = await start([scored(0.8, 0.4)]);
    const stored: Judgement[] = [];
    const pool = poolOf([url], stored);
    await pool.ready(0);
    expect(asked).toEqual([]);
    const outcome = await pool.score(item);
    expect(outcome).toMatchObject({
      kind: 'scored',
      value: 0.75 * 0.4 + 0.25 * 0.8,
      parts: { 'ocr_confidence/normalised': 0.4, 'vlm_score/normalised': 0.8 },
    });
    const [body] = asked as Record<string, string>[];
    expect(Object.keys(body).sort()).toEqual(['image', 'mask', 'prompt']);
    expect(body['prompt']).toBe("The text is 'Delia'");
    for (const [name, sent] of [
      ['image', picture],
      ['mask', mask],
    ] as const) {
      expect(body[name]).toBe(Buffer.from(await encodePng(sent)).toString('base64'));
      expect((await decodeImage(Buffer.from(body[name], 'base64'), name)).data).toEqual(sent.data);
    }
    // A resumed run finds the reply among its judgements.
    expect(await pool.score(item)).toEqual(outcome);
    expect(asked).toHaveLength(1);
    expect(stored).toHaveLength(1);
  });

  it.each<readonly [string, Reply, string]>([
    ['an exception that the handler caught', caught('CUDA out of memory'), 'it failed with 500: "CUDA out of memory"'],
    ['one that it did not catch', [500, 'Internal Server Error'], 'HTTP 500 "Internal Server Error"'],
    ['something else', [200, { score: 1 }], 'this is no reply of a Calligrapher reward server'],
    ['a score of no number', [200, { vlm_score: null, ocr_confidence: 0.5 }], 'this is no reply'],
  ])('goes to the next server after %s, and is unscored where that one fails too', async (_what, failure, said) => {
    const [bad, good] = [await start([failure]), await start([scored(1, 1)])];
    expect(await poolOf([bad.url, good.url]).score(item)).toMatchObject({ kind: 'scored', value: 1 });
    const outcome = await poolOf([bad.url]).score(item);
    expect(outcome).toMatchObject({ kind: 'unscored', reason: 'server_error' });
    expect(outcome.kind === 'unscored' ? outcome.detail : '').toContain(said);
  });

  it('leaves a score outside of 0 to 1 unscored, and takes the first of a list', async () => {
    const { url } = await start([scored(1.8, 0.5)]);
    expect(await poolOf([url]).score(item)).toMatchObject({ kind: 'unscored', reason: 'out_of_range' });
    const listed = await start([[200, [{ vlm_score: 0.2, ocr_confidence: 1 }]]]);
    expect(await poolOf([listed.url]).score(item)).toMatchObject({ value: 0.8 });
  });

  it('asks nobody about an answer without a picture', async () => {
    const { url, asked } = await start([scored(1, 1)]);
    const outcome = await poolOf([url]).score({ ...item, edited: null });
    expect(outcome).toEqual({ kind: 'zero_by_rule', reason: 'undecodable', parts: {} });
    expect(asked).toEqual([]);
  });

  it('is not ready where another program listens', async () => {
    const { url } = await start([scored(1, 1)]);
    const other = poolOf([url.replace('/score', '/other')]);
    await expect(other.ready(0)).rejects.toThrow(/HTTP 404, and no Calligrapher reward server's/);
  });

  it('needs weights for the two scores, and for no others', () => {
    const fields = { protocol: 'calligrapher', endpoint: 'http://127.0.0.1:8000/score' } as const;
    const conflict = (given: Readonly<Record<string, number>> | null) =>
      remote.conflict?.({ ...fields, terms: given } as never);
    expect(conflict(terms)).toBeNull();
    expect(conflict(null)).toMatchObject({ field: 'terms', message: expect.stringContaining('found null') as string });
    expect(conflict({ ocr_confidence: 0.5, align_quality: 0.5 })?.message).toContain("found 'align_quality'");
  });
});
