/** Answers one chat request: from an upstream, or from another upstream if that fails. */
import { type Clock, Deadline } from '../../core/clock.js';
import { sha256 } from '../../core/images/image.js';
import type { HttpPool } from '../../core/http/pool.js';
import { Refusal, badRequest } from '../../core/http/refusal.js';
import type { Dispatcher, Lease, Turn } from './dispatcher.js';
import type { GatewayMetrics } from './metrics.js';
import type { Upstream } from './upstream.js';
import type { IncomingHttpHeaders } from 'node:http';
import { byStatus, type StatusTable } from '../../core/http/status.js';
import { causeOf } from '../../core/http/request.js';
import { excerpt } from '../judge/parse.js';
import { redactBytes, type Redact } from '../../core/http/key.js';
import type { RequestEnd } from '../../core/remote/member.js';
import { setImmediate } from 'node:timers/promises';
import { chatSchema, imagesOf, parseChat } from '../judge/chat_messages.js';
import { dataUrlContent, isBase64, pixelCount } from '../../core/images/image_text.js';

export interface ChatServices {
  readonly clock: Clock;
  readonly dispatcher: Dispatcher;
  /** Connections to the upstreams; it knows their key. */
  readonly pool: HttpPool;
  readonly upstreamKey: string | null;
  readonly timeoutMs: number;
  readonly metrics: GatewayMetrics;
}

export interface ChatCall {
  readonly run: string;
  readonly model: string;
  /** The body as received, which is sent on unchanged. */
  readonly bytes: Buffer;
  /** Aborted when the caller goes away. */
  readonly gone: AbortSignal;
}

/** What the caller gets. */
export interface ChatAnswer {
  readonly status: number;
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/** Raises Refusal when no upstream's reply can be passed on. */
export async function answerChat(call: ChatCall, services: ChatServices): Promise<ChatAnswer> {
  const { upstream, found } = await ask(call, services);
  if (found.kind === 'failed') throw failureProblem(found, upstream);
  return { status: found.status, body: found.body, headers: { ...found.headers, 'x-editrl-upstream': upstream } };
}

/** An exchange, and the upstream that it was with. */
interface Answered {
  readonly upstream: string;
  readonly found: Exchange;
}

/** Asks one upstream after the other, each at most once, until one answers or the request itself seems to be at fault. */
async function ask(call: ChatCall, services: ChatServices): Promise<Answered> {
  const { dispatcher, metrics } = services;
  const tried = new Set<Upstream>();
  let last: Answered | null = null;
  let doubts = 0;
  for (;;) {
    const turn = await dispatcher.acquire({
      run: call.run,
      allowed: (upstream) => upstream.serves(call.model) && !tried.has(upstream),
      signal: call.gone,
      again: last !== null,
    });
    if (turn.kind !== 'lease') {
      if (last !== null && turn.kind !== 'given_up') return last;
      throw refusal(turn.kind, call.model, dispatcher.upstreams);
    }
    const { lease } = turn;
    const { url } = lease.upstream;
    metrics.waited.observe(lease.waitedMs / 1000);
    const found = await send(call, services, lease);
    last = { upstream: url, found };
    const { failOver, error } = meaningOf(found);
    if (error !== null) metrics.errors.add({ upstream: url, kind: error });
    if (failOver === 'no' || (failOver === 'once' && ++doubts > 1)) return last;
    tried.add(lease.upstream);
    metrics.failOvers.add({ upstream: url });
  }
}

async function send(call: ChatCall, services: ChatServices, lease: Lease): Promise<Exchange> {
  const { clock, metrics, pool, upstreamKey, timeoutMs } = services;
  const { upstream } = lease;
  const deadline = new Deadline(clock, timeoutMs, call.gone);
  const started = clock.now();
  let found: Exchange;
  try {
    found = await exchange({
      url: upstream.url,
      body: call.bytes,
      key: upstreamKey,
      pool,
      caller: call.gone,
      deadline: deadline.signal,
    });
  } finally {
    deadline.dispose();
  }
  const { ending } = meaningOf(found);
  // Hashed only if it matters.
  lease.end(ending.health === 'works' ? ending : { ...ending, request: sha256(call.bytes) });
  metrics.observeLatency(upstream.url, (clock.now() - started) / 1000);
  if (found.kind === 'reply' && found.completion !== null) {
    metrics.tokens.add({ direction: 'prompt' }, found.completion.promptTokens ?? 0);
    metrics.tokens.add({ direction: 'completion' }, found.completion.completionTokens ?? 0);
  }
  return found;
}

function failureProblem(found: Exchange & { readonly kind: 'failed' }, upstream: string): Refusal {
  const told = `The judge at ${upstream} gave no reply: ${found.detail}.`;
  if (found.reason === 'timeout') return new Refusal('upstream_late', told);
  if (found.reason === 'given_up') return new Refusal('caller_gone', told);
  return new Refusal('upstream_failed', told);
}

/** Seconds after which a refused caller may ask again. */
const retryAfterS = { queue_full: 2, no_upstream: 5, stopping: 5 } as const;

function refusal(kind: Exclude<Turn['kind'], 'lease'>, model: string, upstreams: readonly Upstream[]): Refusal {
  if (kind === 'given_up') return new Refusal('caller_gone', 'The caller went away.');
  if (kind === 'queue_full') {
    return new Refusal('busy', 'Too many requests wait already.', {
      retryAfterS: retryAfterS.queue_full,
    });
  }
  if (kind === 'stopping') {
    return new Refusal('unavailable', 'This gateway is being stopped.', { retryAfterS: retryAfterS.stopping });
  }
  if (upstreams.some(({ ready }) => ready)) {
    const known = [...new Set(upstreams.filter(({ ready }) => ready).flatMap(({ models }) => models))];
    const message = `The model \`${model}\` does not exist; known: ${known.join(', ')}.`;
    return new Refusal('not_found', message, { param: 'model' });
  }
  return whyNotReady(upstreams);
}

/** Says for every upstream why it is not ready. */
export function whyNotReady(upstreams: readonly Upstream[]): Refusal {
  const why = upstreams.map(({ url, found }) => `${url}: ${found}`).join('; ');
  return new Refusal('unavailable', `No judge is ready. ${why}`, {
    retryAfterS: retryAfterS.no_upstream,
  });
}

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

export interface ReadingOptions {
  readonly maxImages: number;
  readonly maxImagePixels: number;
  /** Aborted when the caller goes away, for whom nothing more is done. */
  readonly caller?: AbortSignal;
}

/**
 * The model that a request asks. Raises Refusal 400 for what is no chat request, wants streaming, or holds an image that is too large, not base64 or not in the request
 * itself, and for too many of them.
 */
export async function readChatModel(bytes: Buffer, options: ReadingOptions): Promise<string> {
  refuseGone(options.caller);
  const { asked } = parseChat(bytes, chatSchema);
  const urls = imagesOf(asked.messages);
  if (urls.length > options.maxImages) {
    throw badRequest(`There are ${urls.length} images; at most ${options.maxImages} are taken at once.`, 'messages');
  }
  for (const url of urls) {
    await checkImage(url, options.maxImagePixels);
    // Yields to others: a large image takes as long as many small requests.
    if (url.length > largeText) await setImmediate();
    refuseGone(options.caller);
  }
  return asked.model;
}

function refuseGone(caller: AbortSignal | undefined): void {
  if (caller?.aborted === true) throw new Refusal('caller_gone', 'The caller went away.');
}

const isImageUrl = /^data:image(?:\/[a-z0-9.+-]+)?;base64,/i;
const largeText = 1_000_000;

/** Raises Refusal for anything but an image within the request, and for one with too many pixels. */
async function checkImage(url: string, maxPixels: number): Promise<void> {
  const text = dataUrlContent(url);
  // The content of an address can change between two requests, and an upstream would fetch it on the caller's behalf.
  if (text === null || !isImageUrl.test(url)) {
    throw badRequest('An image has to be in the request itself: data:image/png;base64,...', 'image_url');
  }
  if (!isBase64(text)) {
    throw badRequest('An image is not base64 (A-Z a-z 0-9 + / and padding).', 'image_url');
  }
  const pixels = await pixelCount(text);
  if (pixels === null) throw badRequest('An image cannot be read: its header is that of no known format.', 'image_url');
  if (pixels <= maxPixels) return;
  const found = (pixels / 1e6).toFixed(1);
  throw badRequest(`An image has ${found} megapixels; at most ${maxPixels / 1e6} are allowed.`, 'image_url');
}
