/** Answers one chat request: from the cache, from an upstream, or from another upstream if that fails. */
import type { Owner } from '../../balance/fair_queue.js';
import type { Clock } from '../../core/clock.js';
import { Deadline } from '../../core/deadline.js';
import { sha256 } from '../../core/image.js';
import type { HttpPool } from '../../http/pool.js';
import { Refusal } from '../../http/refusal.js';
import { CACHE_HEADER } from '../judge/usage.js';
import type { ReplyCache } from './cache.js';
import type { ChatBody } from './chat_body.js';
import type { Dispatcher, Lease, Turn } from './dispatcher.js';
import type { Completion, Exchange } from './exchange.js';
import { exchange, meaningOf, summaryOf } from './exchange.js';
import type { GatewayMetrics } from './metrics.js';
import type { ExchangeRecords } from './records.js';
import type { Upstream } from './upstream.js';

export interface ChatServices {
  readonly clock: Clock;
  readonly dispatcher: Dispatcher;
  /** Connections to the upstreams; it knows their key. */
  readonly pool: HttpPool;
  readonly upstreamKey: string | null;
  readonly timeoutMs: number;
  readonly cache: ReplyCache | null;
  readonly records: ExchangeRecords | null;
  readonly metrics: GatewayMetrics;
}

export interface ChatCall extends Owner {
  readonly chat: ChatBody;
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

/** How a request went, for its record. */
interface RequestProgress {
  attempts: number;
  waitedMs: number;
  upstream: string | null;
}

/** Raises Refusal when no upstream's reply can be passed on. */
export async function answerChat(call: ChatCall, services: ChatServices): Promise<ChatAnswer> {
  const { cache, metrics, records, clock } = services;
  const started = clock.now();
  const course: RequestProgress = { attempts: 0, waitedMs: 0, upstream: null };
  const key = cache !== null && call.chat.deterministic ? call.chat.key() : null;
  const kept = key === null ? undefined : cache?.get(key);
  const hit = kept !== undefined;
  const cached = key === null ? null : hit ? 'hit' : 'miss';
  if (cached !== null) metrics.cache.add({ result: cached });
  const headers: Record<string, string> = cached === null ? {} : { [CACHE_HEADER]: cached };
  const record = (status: number, error: string | null, found: string, completion: Completion | null): void =>
    records?.write(call, {
      upstream: course.upstream,
      cache: cached,
      attempts: course.attempts,
      waitedMs: course.waitedMs,
      latencyMs: clock.now() - started,
      status,
      error,
      found,
      completion,
    });
  if (hit) {
    // Its content is read only for its record.
    if (records !== null) record(200, null, '', summaryOf(kept));
    return { status: 200, body: kept, headers };
  }
  try {
    const reply = await ask(call, services, course);
    const { error, ending } = meaningOf(reply);
    if (reply.kind === 'failed') throw failureProblem(reply, course.upstream);
    record(reply.status, error, ending.found, reply.completion);
    if (key !== null && reply.completion !== null && isCacheable(reply, call.chat)) {
      cache?.put(key, reply.body);
    }
    if (course.upstream !== null) headers['x-editrl-upstream'] = course.upstream;
    return { status: reply.status, body: reply.body, headers: { ...reply.headers, ...headers } };
  } catch (problem) {
    if (problem instanceof Refusal) record(problem.status, problem.type, problem.message, null);
    throw problem;
  }
}

/**
 * Keeps a reply if every choice ended by itself. A reply that was cut off is kept only if log-probabilities were requested: their first token is the
 * whole answer, and its limit is one token. Any other reply may turn out better next time.
 */
function isCacheable(reply: Exchange & { readonly kind: 'reply' }, chat: ChatBody): boolean {
  const { completion } = reply;
  if (completion === null) return false;
  return completion.whole === 'stopped' || (completion.whole === 'cut_off' && chat.wantsLogprobs);
}

/** Asks one upstream after the other, each at most once, until one answers or the request itself seems to be at fault. */
async function ask(call: ChatCall, services: ChatServices, course: RequestProgress): Promise<Exchange> {
  const { dispatcher, metrics } = services;
  const tried = new Set<Upstream>();
  let last: Exchange | null = null;
  let doubts = 0;
  for (;;) {
    const turn = await dispatcher.acquire({
      caller: call.caller,
      run: call.run,
      allowed: (upstream) => upstream.serves(call.chat.model) && !tried.has(upstream),
      signal: call.gone,
      again: last !== null,
    });
    if (turn.kind !== 'lease') {
      if (last !== null && turn.kind !== 'given_up') return last;
      throw refusal(turn.kind, call.chat.model, dispatcher.upstreams);
    }
    const { lease } = turn;
    const { url } = lease.upstream;
    course.attempts++;
    course.waitedMs += lease.waitedMs;
    course.upstream = url;
    metrics.waited.observe(lease.waitedMs / 1000);
    last = await send(call, services, lease);
    const { failOver, error } = meaningOf(last);
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

function failureProblem(found: Exchange & { readonly kind: 'failed' }, upstream: string | null): Refusal {
  const told = `The judge at ${upstream ?? 'no address'} gave no reply: ${found.detail}.`;
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
