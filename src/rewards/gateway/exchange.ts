/** One request to one upstream, and what its end means: pass it on, try elsewhere, slow down, count a failure. */
import type { IncomingHttpHeaders } from 'node:http';
import { byStatus, type StatusTable } from '../../http/meaning.js';
import type { HttpPool } from '../../http/pool.js';
import { causeOf } from '../../http/request.js';
import { excerpt } from '../judge/parse.js';
import { redactBytes, type Redact } from '../../http/redact.js';
import type { RequestEnd } from '../../balance/member.js';

/** What came back, or why nothing did. Never contains the upstream's key, even if the upstream quoted it. */
export type Exchange =
  | {
      readonly kind: 'reply';
      readonly status: number;
      readonly body: Buffer;
      /** The headers of the reply that a caller can use; see `passedOn`. */
      readonly headers: Readonly<Record<string, string>>;
      /** The completion where the status is 200. */
      readonly completion: Completion | null;
    }
  | { readonly kind: 'failed'; readonly reason: FailureReason; readonly detail: string };

/**
 * `connection`: there was none; `bad_reply`: what came over it is no completion, or too large, or no HTTP, or it broke while the request or
 * its reply was under way, all of which one request can bring about.
 */
export type FailureReason = 'connection' | 'timeout' | 'given_up' | 'bad_reply' | 'refused_key';

/** The parts of a completion that the gateway reads; everything else is passed on unread. */
export interface Completion {
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
}

export interface ExchangeRequest {
  /** Base URL. */
  readonly url: string;
  readonly body: Buffer;
  /** The upstream's own key; the caller's is never passed on. */
  readonly key: string | null;
  readonly pool: Pick<HttpPool, 'exchange' | 'redact'>;
  /** Aborted when the caller goes away. */
  readonly caller: AbortSignal;
  /** Aborted when the time is over. */
  readonly deadline: AbortSignal;
}

/** Sends one chat request. Never rejects. */
export async function exchange({ url, body, key, pool, caller, deadline }: ExchangeRequest): Promise<Exchange> {
  const { redact } = pool;
  let sending = false;
  try {
    const reply = await pool.exchange(`${url}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(key === null ? {} : { authorization: `Bearer ${key}` }) },
      body,
      signal: deadline,
      onSending: () => (sending = true),
    });
    return readReply(reply.status, redactBytes(reply.body, redact), usefulHeaders(reply.headers, redact));
  } catch (error) {
    if (caller.aborted) return { kind: 'failed', reason: 'given_up', detail: 'the caller went away' };
    if (deadline.aborted) return { kind: 'failed', reason: 'timeout', detail: 'no answer in time' };
    return { kind: 'failed', reason: sending ? 'bad_reply' : 'connection', detail: redact(causeOf(error)) };
  }
}

/** Headers for retry times, quotas, request ids, and the content type of the body. */
const passedOn = /^(?:content-type|x-request-id|retry-after(?:-ms)?|x-should-retry|openai-.+|x-ratelimit-.+)$/;

function usefulHeaders(headers: IncomingHttpHeaders, redact: Redact): Record<string, string> {
  const useful: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && passedOn.test(name)) useful[name] = redact(String(value));
  }
  return useful;
}

function readReply(status: number, body: Buffer, headers: Readonly<Record<string, string>>): Exchange {
  if (status === 401 || status === 403) {
    return { kind: 'failed', reason: 'refused_key', detail: `it refused the gateway's key (HTTP ${status})` };
  }
  if (status !== 200) return { kind: 'reply', status, body, headers, completion: null };
  const completion = summaryOf(body);
  if (completion !== null) return { kind: 'reply', status, body, headers, completion };
  const detail = `HTTP 200 without a completion: ${excerpt(body.toString('utf8', 0, 400))}`;
  return { kind: 'failed', reason: 'bad_reply', detail };
}

interface RawCompletion {
  readonly choices?: unknown;
  readonly usage?: { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } | null;
}
/** Null for a body that is not a completion; a completion without choices or words goes to the caller, who decides what to make of it. */
function summaryOf(body: Buffer): Completion | null {
  let json: unknown;
  try {
    json = JSON.parse(body.toString('utf8'));
  } catch {
    return null;
  }
  if (typeof json !== 'object' || json === null) return null;
  const { choices, usage } = json as RawCompletion;
  if (!Array.isArray(choices)) return null;
  return {
    promptTokens: typeof usage?.prompt_tokens === 'number' ? usage.prompt_tokens : null,
    completionTokens: typeof usage?.completion_tokens === 'number' ? usage.completion_tokens : null,
  };
}

/** What an exchange means for the upstream and for the request. */
export interface Meaning {
  readonly ending: RequestEnd & { readonly found: string };
  /**
   * Whether other upstreams may do better; a chat request has no side effects, so it may be repeated. `once` if the request itself may be at fault,
   * so that it is not sent to all of them.
   */
  readonly failOver: 'no' | 'once' | 'any';
  /** Names the kind of error in metrics; null for none. */
  readonly error: string | null;
}

type Kind = Pick<Meaning, 'failOver' | 'error'> & Pick<RequestEnd, 'load' | 'health'>;

const failures: Readonly<Record<FailureReason, Omit<Kind, 'error'>>> = {
  connection: { load: 'nothing', health: 'fails', failOver: 'any' },
  bad_reply: { load: 'nothing', health: 'unsure', failOver: 'once' },
  // Some also refuse a text this way.
  refused_key: { load: 'nothing', health: 'unsure', failOver: 'any' },
  // Its time is used up, and another upstream would take as long again.
  timeout: { load: 'overloaded', health: 'unsure', failOver: 'no' },
  // Callers who give up time after time may have met a server that hangs.
  given_up: { load: 'nothing', health: 'unsure', failOver: 'no' },
};

const works: Kind = { load: 'carried', health: 'works', failOver: 'no', error: null };
/** The answer of an engine to a request that it cannot take, and to every request once it is dead. */
const serverError: Kind = { load: 'nothing', health: 'unsure', failOver: 'once', error: 'server_error' };
/** A proxy's answer while its engine is away. */
const away: Kind = { load: 'nothing', health: 'fails', failOver: 'any', error: 'server_error' };
/** It refused this request, and so it works. */
const refused: Kind = { load: 'nothing', health: 'works', failOver: 'no', error: 'bad_request' };

const STATUSES: StatusTable<Kind> = {
  200: works,
  // A server that turns requests away is working.
  429: { load: 'overloaded', health: 'works', failOver: 'any', error: 'rate_limited' },
  502: away,
  503: { ...away, load: 'overloaded' },
  504: away,
  '5xx': serverError,
  rest: refused,
};

export function meaningOf(found: Exchange): Meaning {
  if (found.kind === 'failed') return toMeaning({ ...failures[found.reason], error: found.reason }, found.detail);
  const kind = byStatus(STATUSES, found.status);
  return toMeaning(kind, kind === works ? '' : `HTTP ${found.status}`);
}

function toMeaning({ load, health, failOver, error }: Kind, found: string): Meaning {
  return { ending: { load, health, found }, failOver, error };
}
