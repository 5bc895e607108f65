/**
 * The reward clients of Calligrapher's training (train/rl_ip/reward.py at 9967400 and at its newest revision) against this server: the requests that
 * they send, and how they read replies. Their fallback for an error, and for a field that is no number, is a score of 0.
 */
import sharp from 'sharp';
import { afterEach, describe, expect, it } from 'vitest';
import type { JudgeItem } from '../../../src/rewards/score/types.js';
import { pictureOf } from '../terms/term_contract.js';
import { byPicture, fingerprint, picture, place, rewardOf, type ScoreTerm } from './served.js';

const here = place();
afterEach(() => here.close());

interface Sent {
  readonly image: string;
  readonly prompt: string;
  readonly mask?: string;
  readonly timestep?: string;
}

/** What the client does with a reply; `failed` where it gives up and counts 0. */
type Read = { readonly vlm: number; readonly ocr: number } | { readonly failed: number };

/** As Python's requests sends it, with ASCII JSON; read by raise_for_status and float(data.get(name, 0.0)). */
async function clientAsks(url: string, sent: Sent): Promise<Read> {
  const body = JSON.stringify(sent).replace(
    /[\u0080-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  const headers = { 'user-agent': 'python-requests/2.32.3', accept: '*/*', 'content-type': 'application/json' };
  const response = await fetch(`${url}/score`, { method: 'POST', headers, body });
  if (!response.ok) return { failed: response.status };
  let data: unknown = await response.json();
  if (Array.isArray(data)) data = data[0];
  const { vlm_score: vlm = 0, ocr_confidence: ocr = 0 } = data as Record<string, unknown>;
  return { vlm: pythonFloat(vlm), ocr: pythonFloat(ocr) };
}

function pythonFloat(value: unknown): number {
  if (typeof value === 'number') return value;
  throw new TypeError(`float() argument must be a number, not ${String(value)}`);
}

/** A picture of one channel, as Pillow saves mode L. */
async function grayPng(width: number, height: number, pixels: readonly number[]): Promise<string> {
  const raw = { width, height, channels: 1 } as const;
  return (await sharp(Uint8Array.from(pixels), { raw }).toColourspace('b-w').png().toBuffer()).toString('base64');
}

function seedReward(vlm: ScoreTerm = byPicture('align_quality', 2), seen: JudgeItem[] = []) {
  return rewardOf({
    ocr_confidence: {
      weight: 0.7,
      score: (item) => {
        seen.push(item);
        return byPicture('ocr_confidence')(item);
      },
    },
    align_quality: { weight: 0.3, score: vlm },
  });
}

describe("Calligrapher's client", () => {
  const seen = fingerprint(pictureOf(2));

  it('at 9967400 sends image and prompt, and reads both numbers', async () => {
    const { url } = await here.start(seedReward());
    const read = await clientAsks(url, { image: await picture(2), prompt: "The text is '字'" });
    expect(read).toEqual({ ocr: seen, vlm: seen / 2 });
  });

  it('at its newest revision adds a gray mask and a timestep', async () => {
    const items: JudgeItem[] = [];
    const { url } = await here.start(seedReward(undefined, items));
    const read = await clientAsks(url, {
      image: await picture(2),
      prompt: "The text is '字'",
      mask: await grayPng(2, 1, [0, 255]),
      timestep: 'step_12_t_500',
    });
    expect(read).toEqual({ ocr: seen, vlm: seen / 2 });
    expect(items[0]).toMatchObject({ instruction: "The text is '字'", edited: pictureOf(2) });
    expect(items[0].mask).toEqual({ width: 2, height: 1, data: Uint8Array.of(0, 0, 0, 255, 255, 255) });
  });

  it.each(['timeout', 'connection', 'rate_limited', 'server_error', 'unparsable'] as const)(
    'gets an HTTP error it may retry, never a null, when the judge gives no score: %s',
    async (reason) => {
      const { url } = await here.start(
        seedReward(() => ({ kind: 'unscored', reason, detail: 'the judge is away', parts: {} })),
      );
      const sent = { image: await picture(2), prompt: 'a sign' };
      expect(await clientAsks(url, sent)).toEqual({ failed: 503 });
      const response = await fetch(`${url}/score`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(sent),
      });
      expect(response.headers.get('retry-after')).toBe('5');
      const { error } = (await response.json()) as { error: { message: string; type: string } };
      expect(error).toMatchObject({ type: 'ServiceUnavailable' });
      expect(error.message).toContain(`align_quality gave no score (${reason}): the judge is away`);
    },
  );

  it('gets 400 for an image that does not decode', async () => {
    const { url } = await here.start(seedReward());
    expect(await clientAsks(url, { image: 'bm90IGFuIGltYWdl', prompt: 'a sign' })).toEqual({ failed: 400 });
  });

  it('gets 503 for a null beside a score: a term of weight 0 failed', async () => {
    const { url } = await here.start(
      rewardOf({
        ocr_confidence: { weight: 1, score: byPicture('ocr_confidence') },
        align_quality: {
          weight: 0,
          score: () => ({ kind: 'unscored', reason: 'timeout', detail: 'late', parts: {} }),
        },
      }),
    );
    expect(await clientAsks(url, { image: await picture(2), prompt: 'a sign' })).toEqual({ failed: 503 });
  });
});
