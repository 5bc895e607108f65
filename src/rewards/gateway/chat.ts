/** One chat request through the gateway: from the cache, or from an upstream, or from another one where that fails. */
import type { Dispatcher as UndiciDispatcher } from 'undici';
import type { Clock } from '../../core/clock.js';
import { Deadline } from '../../core/deadline.js';
import { Refusal } from '../../http/refusal.js';
import type { ReplyCache } from './cache.js';
import type { ChatBody } from './chat_body.js';
import type { Dispatcher, Lease } from './dispatcher.js';
import type { Exchange } from './exchange.js';
import { exchange, meaningOf, readCompletion } from './exchange.js';
import type { GatewayMetrics } from './metrics.js';
import type { ExchangeRecords } from './records.js';
import type { Upstream } from './upstream.js';

export interface ChatServices {
  readonly clock: Clock;
  readonly dispatcher: Dispatcher;
  readonly agent: UndiciDispatcher;
  readonly upstreamKey: string | null;
  readonly timeoutMs: number;
  readonly cache: ReplyCache | null;
  readonly records: ExchangeRecords | null;
  readonly metrics: GatewayMetrics;
}

export interface ChatCall {
  readonly run: string;
  readonly chat: ChatBody;
  /** The body as it came, which is what is sent on. */
  readonly bytes: Buffer;
  /** Aborted when the caller goes away. */
  readonly caller: AbortSignal;
}

/** What the caller gets. */
export interface ChatAnswer {
  readonly status: number;
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/** How a request went, for its record. */
interface Course {
  attempts: number;
  waitedMs: number;
  upstream: string | null;
}

/** Raises Refusal where no upstream's reply can be passed on. */
export async function answerChat(call: ChatCall, services: ChatServices): Promise<ChatAnswer> {
  const { cache, metrics, records, clock } = services;
  const started = clock.now();
  const course: Course = { attempts: 0, waitedMs: 0, upstream: null };
  const key = cache !== null && call.chat.deterministic ? call.chat.key() : null;
  const kept = key === null ? undefined : cache?.get(key);
  const hit = kept !== undefined;
  const cached = key === null ? null : hit ? 'hit' : 'miss';
  if (cached !== null) metrics.cache.add({ result: cached });
  const headers: Record<string, string> = cached === null ? {} : { 'x-editrl-cache': cached };
  const record = (status: number, error: string | null, found: string, reply: Exchange | null): void =>
    records?.write(call, {
      upstream: course.upstream,
      cache: cached,
      attempts: course.attempts,
      waitedMs: course.waitedMs,
      latencyMs: clock.now() - started,
      status,
      error,
      found,
      completion: reply?.kind === 'reply' ? reply.completion : null,
    });
  if (hit) {
    const body = Buffer.from(kept);
    record(200, null, '', keptReply(body));
    return { status: 200, body, headers };
  }
  try {
    const reply = await ask(call, services, course);
    const { error, found } = meaningOf(reply);
    if (reply.kind === 'failed') throw failureProblem(reply, course.upstream);
    record(reply.status, error, found, reply);
    if (key !== null && reply.completion !== null && mayKeep(reply, call.chat)) {
      cache?.put(key, reply.body.toString('utf8'));
    }
    if (course.upstream !== null) headers['x-editrl-upstream'] = course.upstream;
    if (reply.retryAfter !== null) headers['retry-after'] = reply.retryAfter;
    return { status: reply.status, body: reply.body, headers };
  } catch (problem) {
    if (problem instanceof Refusal) record(problem.status, problem.type, problem.message, null);
    throw problem;
  }
}

/**
 * A reply is kept where every choice ended by itself. One that was cut off is kept only where log-probabilities were asked for: their
 * first token is the whole answer, and its limit is one token. Everything else may go better another time.
 */
function mayKeep(reply: Exchange & { readonly kind: 'reply' }, chat: ChatBody): boolean {
  const { completion } = reply;
  if (completion === null) return false;
  return completion.whole === 'stopped' || (completion.whole === 'cut_off' && chat.wantsLogprobs);
}

/** Asks one upstream after the other, each at most once, until one of them answers. */
async function ask(call: ChatCall, services: ChatServices, course: Course): Promise<Exchange> {
  const { dispatcher, metrics } = services;
  const tried = new Set<Upstream>();
  let last: Exchange | null = null;
  for (;;) {
    const turn = await dispatcher.acquire({
      run: call.run,
      allowed: (upstream) => upstream.serves(call.chat.model) && !tried.has(upstream),
      signal: call.caller,
      again: last !== null,
    });
    if (turn.kind !== 'lease') {
      if (turn.kind === 'no_upstream' && last !== null) return last;
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
    if (!failOver) return last;
    tried.add(lease.upstream);
    metrics.failOvers.add({ upstream: url });
  }
}

async function send(call: ChatCall, services: ChatServices, lease: Lease): Promise<Exchange> {
  const { clock, metrics, agent, upstreamKey, timeoutMs } = services;
  const { upstream } = lease;
  const deadline = new Deadline(clock, timeoutMs, call.caller);
  const started = clock.now();
  let found: Exchange;
  try {
    found = await exchange({
      url: upstream.url,
      body: call.bytes,
      key: upstreamKey,
      agent,
      caller: call.caller,
      deadline: deadline.signal,
    });
  } finally {
    deadline.dispose();
  }
  const meaning = meaningOf(found);
  lease.end(meaning.load, meaning.health, meaning.found);
  if (found.kind === 'failed' && found.reason === 'given_up') upstream.givenUp();
  metrics.observeLatency(upstream.url, (clock.now() - started) / 1000);
  if (found.kind === 'reply' && found.completion !== null) {
    metrics.tokens.add({ direction: 'prompt' }, found.completion.promptTokens ?? 0);
    metrics.tokens.add({ direction: 'completion' }, found.completion.completionTokens ?? 0);
  }
  return found;
}

/** A kept reply as it came from an upstream. */
function keptReply(body: Buffer): Exchange {
  return { kind: 'reply', status: 200, body, retryAfter: null, completion: readCompletion(body) };
}

function failureProblem(found: Exchange & { readonly kind: 'failed' }, upstream: string | null): Refusal {
  const told = `The judge at ${upstream ?? 'no address'} gave no reply: ${found.detail}.`;
  if (found.reason === 'timeout') return new Refusal('upstream_late', told);
  if (found.reason === 'given_up') return new Refusal('caller_gone', told);
  return new Refusal('upstream_failed', told);
}

/** Seconds after which a refused caller may ask again. */
const retryAfterS = { queue_full: 2, no_upstream: 5 } as const;

function refusal(
  kind: 'queue_full' | 'no_upstream' | 'given_up',
  model: string,
  upstreams: readonly Upstream[],
): Refusal {
  if (kind === 'given_up') return new Refusal('caller_gone', 'The caller went away.');
  if (kind === 'queue_full') {
    return new Refusal('busy', 'Too many requests of this run wait already.', {
      retryAfterS: retryAfterS.queue_full,
    });
  }
  if (upstreams.some(({ ready }) => ready)) {
    const known = [...new Set(upstreams.filter(({ ready }) => ready).flatMap(({ models }) => models))];
    const message = `The model \`${model}\` does not exist; known: ${known.join(', ')}.`;
    return new Refusal('not_found', message, { param: 'model' });
  }
  return notReady(upstreams);
}

/** Says of every upstream why it is not ready. */
export function notReady(upstreams: readonly Upstream[]): Refusal {
  const why = upstreams.map(({ url, found }) => `${url}: ${found}`).join('; ');
  return new Refusal('unavailable', `No judge is ready. ${why}`, {
    retryAfterS: retryAfterS.no_upstream,
  });
}
