/** A reward server with terms that a test writes, and requests to it. */
import { encodePng } from '../../../src/core/images/image.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import { startRewardServer, type RunningRewardServer } from '../../../src/rewards/server/server.js';
import { type ServerLimits } from '../../../src/rewards/server/scorer.js';
import type { ServedReward } from '../../../src/rewards/server/scorer.js';
import { LINES } from '../../../src/rewards/server/request.js';
import type { ReplyItem } from '../../../src/rewards/server/wire.js';
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { weightedSum } from '../../../src/rewards/score/weighted.js';
import { imageOf } from '../terms/term_contract.js';

export type ScoreTerm = (item: JudgeItem, signal?: AbortSignal) => Outcome | Promise<Outcome>;

/** Outcomes of a term by what is in the image: its first colors, so that each image has its own. */
export const byPicture =
  (name: string, divisor = 1): ScoreTerm =>
  ({ edited }) => {
    if (edited === null) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
    const value = fingerprint(edited) / divisor;
    return { kind: 'scored', value: 10 * value, normalised: value, parts: { [`${name}/seen`]: value } };
  };

/** In [0, 1], of the pixels. */
export function fingerprint({ data }: RgbImage): number {
  return (data[0] * 65_536 + data[1] * 256 + data[2]) / 0xffffff;
}

export function rewardOf(
  terms: Readonly<Record<string, { readonly weight: number; readonly score: ScoreTerm }>>,
  digest = 'digest-of-the-test',
): ServedReward {
  const entries = Object.entries(terms);
  return {
    digest,
    terms: entries.map(([name, { weight }]) => ({ name, weight })),
    scoreTerms: async (item, signal) => {
      const outcomes = await Promise.all(
        entries.map(async ([name, { weight, score }]) => ({ name, weight, outcome: await score(item, signal) })),
      );
      return { outcome: weightedSum(outcomes), terms: outcomes };
    },
  };
}

/** The terms of the seed's clients. */
export const readsAndJudges = rewardOf({
  ocr_confidence: { weight: 0.6, score: byPicture('ocr_confidence') },
  align_quality: { weight: 0.4, score: byPicture('align_quality', 2) },
});

export interface StartOptions {
  readonly limits?: Partial<ServerLimits>;
  readonly token?: string | null;
  /** A free one where it is absent. */
  readonly port?: number;
  readonly onDefect?: (error: unknown) => void;
}

export interface Place {
  readonly servers: RunningRewardServer[];
  start(reward: ServedReward, options?: StartOptions): Promise<RunningRewardServer>;
  close(): Promise<void>;
}

export function place(): Place {
  const servers: RunningRewardServer[] = [];
  return {
    servers,
    start: async (reward, { limits = {}, token = null, port = 0, onDefect }: StartOptions = {}) => {
      const server = await startRewardServer({
        host: '127.0.0.1',
        port,
        token,
        reward,
        // Nothing of a test lingers.
        limits: { drainTimeoutMs: 2_000, timeoutCheckMs: 50, ...limits },
        ...(onDefect === undefined ? {} : { onDefect }),
      });
      servers.push(server);
      return server;
    },
    close: async () => {
      await Promise.all(servers.splice(0).map((server) => server.close()));
    },
  };
}

export async function base64Of(image: RgbImage): Promise<string> {
  return Buffer.from(await encodePng(image)).toString('base64');
}

export const picture = (seed: number): Promise<string> => base64Of(imageOf(seed));

export interface Replied {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Record<string, unknown> & {
    readonly error?: { message: string; type: string };
    readonly items?: readonly ReplyItem[];
  };
}

export async function post(
  url: string,
  body: string | Uint8Array<ArrayBuffer>,
  headers: Readonly<Record<string, string>> = {},
): Promise<Replied> {
  const response = await fetch(`${url}/score`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', ...headers },
  });
  return { status: response.status, headers: response.headers, body: (await response.json()) as Replied['body'] };
}

/** One item, or `items` as a stream. Their replies have the order of the items. */
export async function postJson(
  url: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Replied> {
  const { items } = body as { readonly items?: readonly { readonly key?: string }[] };
  if (items === undefined) return post(url, JSON.stringify(body), headers);
  const keys = items.map(({ key }, index) => key ?? String(index));
  const lines = items.map((item, index) => `${JSON.stringify({ ...item, key: keys[index] })}\n`);
  const replied = await postLines(url, lines.join(''), headers);
  const byKey = new Map(replied.body.items?.map((item) => [item.key, item]));
  return { ...replied, body: { ...replied.body, items: keys.flatMap((key) => byKey.get(key) ?? []) } };
}

/** A stream, with its replies in the order of arrival and the error that ended it. */
export async function postLines(
  url: string,
  body: string | Uint8Array<ArrayBuffer>,
  headers: Readonly<Record<string, string>> = {},
): Promise<Replied> {
  const response = await fetch(`${url}/v1/score`, {
    method: 'POST',
    body,
    headers: { 'content-type': LINES, ...headers },
  });
  const lines = (await response.text()).split('\n').filter((line) => line !== '');
  const parsed = lines.map((line) => JSON.parse(line) as ReplyItem & Replied['body']);
  const { error } = parsed.at(-1) ?? {};
  const items = parsed.filter((line) => line.error === undefined);
  return {
    status: response.status,
    headers: response.headers,
    body: error === undefined ? { items } : { items, error },
  };
}
