/** The requests of each kind of reward server, and how its replies are read: a table with a line for each kind. */
import { z } from 'zod';
import type { HttpPool } from '../../../core/http/pool.js';
import { excerpt } from '../../judge/parse.js';
import {
  CALLIGRAPHER_TERMS,
  type ProtocolName,
  healthSchema,
  replySchema,
  toWire,
  type HealthReply,
  type ReplyItem,
  type RequestItem,
} from '../wire.js';
import { weightedSum } from '../../score/weighted.js';
import type { JudgeItem, Outcome } from '../../score/types.js';

import { pictureId, pngToSend, sha256, type RgbImage } from '../../../core/images/image.js';
import type { UnscoredReason } from '../../score/types.js';

/**
 * `elsewhere`: another server may do better, this one does not work; `failed`: another one may do better, and what is at fault is not known;
 * `busy`: it works, and has too much to do; `give_up`: the request itself is
 * at fault, and every server would say so.
 */
export type Attempt =
  | { readonly kind: 'item'; readonly item: ReplyItem; readonly reward: string }
  | {
      readonly kind: 'elsewhere' | 'failed' | 'busy' | 'give_up';
      readonly reason: UnscoredReason;
      readonly detail: string;
      readonly retryAfterMs?: number;
    };

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Shares by the name of a term; they add up to 1. */
export type Weights = Readonly<Record<string, number>>;

/** The result of checking a server: what it scores with, or why it cannot be asked; `final`: waiting does not help. */
export type ServerCheckResult = { readonly health: HealthReply } | { readonly found: string; readonly final: boolean };

export interface CheckRequest {
  readonly http: HttpPool;
  /** Base URL of the server. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Whether the judge behind the server has to answer, too. */
  readonly judge: boolean;
  readonly signal: AbortSignal;
}

export interface Protocol {
  /** The outcome of an item that such a server is never asked about; null for all others. */
  readonly known: (item: JudgeItem) => Outcome | null;
  /** The body of a request that scores this item alone. */
  readonly body: (item: JudgeItem) => Promise<string>;
  /** What a reply with a status of success means. */
  readonly read: (text: string, url: string, key: string) => Attempt;
  /** Rejects when there is no connection, or when the signal aborts. */
  readonly look: (request: CheckRequest) => Promise<ServerCheckResult>;
}

/** @param weights shares of the servers' terms; without them the outcome is the one that the servers weigh */
export function protocolOf(name: ProtocolName, weights: Weights | null): Protocol {
  return kinds[name](weights);
}

const kinds: Readonly<Record<ProtocolName, (weights: Weights | null) => Protocol>> = {
  editrl: () => ownProtocol,
  calligrapher,
};

const wrongReply = (url: string, why: string): Attempt => ({
  kind: 'elsewhere',
  reason: 'server_error',
  detail: `${url}: ${why}`,
});

const ownProtocol: Protocol = {
  known: () => null,
  body: bodyOf,
  read(text, url, key) {
    const reply = replySchema.safeParse(parseJson(text));
    if (!reply.success) return wrongReply(url, `this is no reply of a reward server: ${excerpt(text)}`);
    const { items, reward } = reply.data;
    if (items.length !== 1 || items[0].key !== key) return wrongReply(url, 'it replied about another item');
    return { kind: 'item', item: items[0], reward };
  },
  async look({ http, url, headers, judge, signal }) {
    const response = await http.fetch(`${url}/health${judge ? '?judge' : ''}`, { headers, signal });
    const text = await response.text();
    const health = healthSchema.safeParse(parseJson(text));
    if (!health.success) {
      return { found: `HTTP ${response.status}, and no reward server's: ${excerpt(text)}`, final: response.ok };
    }
    if (health.data.status === 'judge_away') {
      return { found: `its judge does not answer: ${health.data.detail ?? ''}`, final: false };
    }
    if (!response.ok) return { found: `it is ${health.data.status}`, final: false };
    if (health.data.reward === undefined) return { found: 'it takes another token', final: true };
    return { health: health.data };
  },
};

const scores = z.object({ vlm_score: z.number(), ocr_confidence: z.number() });
/** Its client takes the first of a list. */
const calligrapherReply = z.union([scores, z.tuple([scores], z.unknown()).transform(([first]) => first)]);
/** FastAPI sends a pair that a handler returns as a list with status 200: the intended status is its second entry. */
const caughtFailure = z.tuple([z.object({ error: z.string() }), z.number()]);
/** FastAPI's answer to a body without the fields that its model requires. */
const missingFields = z.object({ detail: z.array(z.object({ loc: z.array(z.union([z.string(), z.number()])) })) });

/**
 * POST /score with `{image, prompt, mask}` (base64 PNG, text, base64 PNG) is answered by `{vlm_score, ocr_text, ocr_confidence}`, both scores from 0
 * to 1. The server has no name for what it scores with, no health page and no key of an item.
 */
function calligrapher(weights: Weights | null): Protocol {
  return {
    known: ({ edited }) => (edited === null ? { kind: 'zero_by_rule', reason: 'undecodable', parts: {} } : null),
    async body({ instruction, edited, mask = null }) {
      const [image, masked] = await Promise.all([edited, mask].map(base64Png));
      return JSON.stringify({ image, prompt: instruction, ...(masked === null ? {} : { mask: masked }) });
    },
    read(text, url, key) {
      const json = parseJson(text);
      const failure = caughtFailure.safeParse(json);
      if (failure.success) {
        const [{ error }, status] = failure.data;
        return {
          kind: 'failed',
          reason: 'server_error',
          detail: `${url}: it failed with ${status}: ${excerpt(error)}`,
        };
      }
      const reply = calligrapherReply.safeParse(json);
      if (!reply.success) return wrongReply(url, `this is no reply of a Calligrapher reward server: ${excerpt(text)}`);
      return { kind: 'item', item: itemOf(reply.data, key, weights), reward: 'calligrapher' };
    },
    // An empty request is refused with the names of the missing fields, which costs the models nothing.
    async look({ http, url, headers, signal }) {
      const response = await http.fetch(`${url}/score`, { method: 'POST', headers, body: '{}', signal });
      const text = await response.text();
      const refusal = missingFields.safeParse(parseJson(text));
      const lacking = refusal.success ? refusal.data.detail.map(({ loc }) => loc.at(-1)) : [];
      if (response.status === 422 && lacking.includes('image') && lacking.includes('prompt')) {
        const terms = CALLIGRAPHER_TERMS.map((name) => ({ name, weight: weights?.[name] ?? 0 }));
        return { health: { status: 'ok', reward: 'calligrapher', terms } };
      }
      const final = response.status < 500 && response.status !== 429;
      return { found: `HTTP ${response.status}, and no Calligrapher reward server's: ${excerpt(text)}`, final };
    },
  };
}

function itemOf(found: z.output<typeof scores>, key: string, weights: Weights | null): ReplyItem {
  const terms = CALLIGRAPHER_TERMS.map((name) => ({
    name,
    weight: weights?.[name] ?? 0,
    outcome: outcomeOf(found[name]),
  }));
  const outcome = weightedSum(terms.filter(({ weight }) => weight > 0));
  return {
    key,
    outcome: toWire(outcome),
    terms: Object.fromEntries(terms.map(({ name, weight, outcome: own }) => [name, { weight, ...toWire(own) }])),
    vlm_score: found.vlm_score,
    ocr_confidence: found.ocr_confidence,
  };
}

function outcomeOf(score: number): Outcome {
  if (score >= 0 && score <= 1) return { kind: 'scored', value: score, normalised: score, parts: {} };
  return { kind: 'unscored', reason: 'out_of_range', detail: `${score}; allowed: a number from 0 to 1`, parts: {} };
}

/** The body of a request to this program's server. */
async function bodyOf(item: JudgeItem): Promise<string> {
  const { key, instruction, answer, expected, finished } = item;
  const pictures = [item.source, item.edited, item.truth, item.mask ?? null];
  const [source, image, truth, mask] = await Promise.all(pictures.map(base64Png));
  const request: RequestItem = {
    key,
    instruction,
    image,
    source,
    truth,
    ...(mask === null ? {} : { mask }),
    ...(answer === undefined ? {} : { answer }),
    ...(expected === undefined ? {} : { expected }),
    finished,
  };
  return JSON.stringify({ items: [request] });
}

/** A picture as base64 of its PNG. */
async function base64Png(image: RgbImage | null): Promise<string | null> {
  return image === null ? null : Buffer.from(await pngToSend(image)).toString('base64');
}

/** SHA-256 over everything that a server receives about an item, except its key. */
export function hashItem(item: JudgeItem): string {
  const { instruction, answer = null, expected = null, finished } = item;
  const pictures = [item.source, item.edited, item.truth, item.mask ?? null];
  const ids = pictures.map((image) => (image === null ? null : pictureId(image)));
  return sha256(JSON.stringify({ instruction, answer, expected, finished, ids }));
}
