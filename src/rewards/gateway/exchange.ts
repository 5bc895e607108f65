/** One request to one upstream, and what its end means: pass it on, try elsewhere, slow down, count a failure. */
import type { Dispatcher as UndiciDispatcher } from 'undici';
import { exchangeWhole } from '../../http/request.js';
import { excerpt } from '../judge/parse.js';
import { redactBytes, redactor } from '../../http/redact.js';
import type { LoadSign } from '../../balance/limit.js';
import type { HealthSign } from './upstream.js';

/** What came back, or why nothing did. The upstream's key does not stand in it, even where the upstream quoted it. */
export type Exchange =
  | {
      readonly kind: 'reply';
      readonly status: number;
      readonly body: Buffer;
      readonly retryAfter: string | null;
      /** The completion where the status is 200. */
      readonly completion: Completion | null;
    }
  | { readonly kind: 'failed'; readonly reason: FailureReason; readonly detail: string };

export type FailureReason = 'connection' | 'timeout' | 'given_up' | 'bad_reply' | 'refused_key';

/** What the gateway reads of a completion; everything else is passed on unread. */
export interface Completion {
  readonly text: string;
  /** Of the first choice. */
  readonly finishReason: string | null;
  /** Whether every choice has words and ended by itself, or some at the token limit; null for any other end. */
  readonly whole: 'stopped' | 'cut_off' | null;
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
}

export interface ExchangeRequest {
  /** Base URL ending in `/v1`. */
  readonly url: string;
  readonly body: Buffer;
  /** The upstream's own key; the caller's is never passed on. */
  readonly key: string | null;
  readonly agent: UndiciDispatcher;
  /** Aborted when the caller goes away. */
  readonly caller: AbortSignal;
  /** Aborted when the time is over. */
  readonly deadline: AbortSignal;
}

/** Sends one chat request. Never rejects. */
export async function exchange({ url, body, key, agent, caller, deadline }: ExchangeRequest): Promise<Exchange> {
  const redact = redactor(key);
  try {
    const reply = await exchangeWhole(agent, `${url}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(key === null ? {} : { authorization: `Bearer ${key}` }) },
      body,
      signal: deadline,
    });
    const bytes = redactBytes(reply.body, redact);
    const retryAfter = header(reply.headers['retry-after']);
    return readReply(reply.status, bytes, retryAfter === null ? null : redact(retryAfter));
  } catch (error) {
    if (caller.aborted) return { kind: 'failed', reason: 'given_up', detail: 'the caller went away' };
    if (deadline.aborted) return { kind: 'failed', reason: 'timeout', detail: 'no answer in time' };
    return { kind: 'failed', reason: 'connection', detail: redact(messageOf(error)) };
  }
}

function header(value: string | string[] | undefined): string | null {
  return typeof value === 'string' ? value : (value?.[0] ?? null);
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as NodeJS.ErrnoException).code;
  if (error.message === '') return code ?? error.name;
  return code === undefined || error.message.includes(code) ? error.message : `${code}: ${error.message}`;
}

function readReply(status: number, body: Buffer, retryAfter: string | null): Exchange {
  if (status === 401 || status === 403) {
    return { kind: 'failed', reason: 'refused_key', detail: `it refused the gateway's key (HTTP ${status})` };
  }
  if (status !== 200) return { kind: 'reply', status, body, retryAfter, completion: null };
  const completion = readCompletion(body);
  if (completion !== null) return { kind: 'reply', status, body, retryAfter, completion };
  const detail = `HTTP 200 without a completion: ${excerpt(body.toString('utf8', 0, 400))}`;
  return { kind: 'failed', reason: 'bad_reply', detail };
}

interface RawCompletion {
  readonly choices?: unknown;
  readonly usage?: { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } | null;
}
interface RawChoice {
  readonly finish_reason?: unknown;
  readonly message?: { readonly content?: unknown } | null;
}

/** Null for a body that is no completion; one with no choices or no words is, and goes to the caller, who knows what to make of it. */
export function readCompletion(body: Buffer): Completion | null {
  let json: unknown;
  try {
    json = JSON.parse(body.toString('utf8'));
  } catch {
    return null;
  }
  if (typeof json !== 'object' || json === null) return null;
  const { choices, usage } = json as RawCompletion;
  if (!Array.isArray(choices)) return null;
  const all = choices as readonly (RawChoice | null)[];
  const textOf = (choice: RawChoice | null | undefined): string =>
    typeof choice?.message?.content === 'string' ? choice.message.content : '';
  const first = all.at(0);
  return {
    text: textOf(first),
    finishReason: typeof first?.finish_reason === 'string' ? first.finish_reason : null,
    whole: wholeness(all.map((choice) => (textOf(choice) === '' ? null : choice?.finish_reason))),
    promptTokens: typeof usage?.prompt_tokens === 'number' ? usage.prompt_tokens : null,
    completionTokens: typeof usage?.completion_tokens === 'number' ? usage.completion_tokens : null,
  };
}

function wholeness(ends: readonly unknown[]): Completion['whole'] {
  if (ends.length === 0 || ends.some((end) => end !== 'stop' && end !== 'length')) return null;
  return ends.includes('length') ? 'cut_off' : 'stopped';
}

/** What an exchange means for the upstream and for the request. */
export interface Meaning {
  readonly load: LoadSign;
  readonly health: HealthSign;
  /** Whether another upstream may do better; a chat request has no side effects, so it may be made again. */
  readonly failOver: boolean;
  readonly found: string;
  /** Names the kind of error in metrics and records; null for none. */
  readonly error: string | null;
}

const failures: Readonly<Record<FailureReason, Omit<Meaning, 'found' | 'error'>>> = {
  connection: { load: 'nothing', health: 'fails', failOver: true },
  bad_reply: { load: 'nothing', health: 'fails', failOver: true },
  refused_key: { load: 'nothing', health: 'fails', failOver: true },
  // Its time is used up, and elsewhere it would take as long again.
  timeout: { load: 'overloaded', health: 'fails', failOver: false },
  given_up: { load: 'nothing', health: 'nothing', failOver: false },
};

export function meaningOf(found: Exchange): Meaning {
  if (found.kind === 'failed') return { ...failures[found.reason], found: found.detail, error: found.reason };
  const { status } = found;
  const told = `HTTP ${status}`;
  if (status === 200) return { load: 'carried', health: 'works', failOver: false, found: '', error: null };
  // A server that turns requests away works.
  if (status === 429) {
    return { load: 'overloaded', health: 'works', failOver: true, found: told, error: 'rate_limited' };
  }
  if (status === 503) {
    return { load: 'overloaded', health: 'fails', failOver: true, found: told, error: 'server_error' };
  }
  if (status >= 500) return { load: 'nothing', health: 'fails', failOver: true, found: told, error: 'server_error' };
  return { load: 'nothing', health: 'works', failOver: false, found: told, error: 'bad_request' };
}
