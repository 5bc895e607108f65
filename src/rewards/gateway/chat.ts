/** Answers one chat request: from an upstream, or from another upstream if that fails. */
import type { Clock } from '../../core/clock.js';
import { Deadline } from '../../core/deadline.js';
import { sha256 } from '../../core/image.js';
import type { HttpPool } from '../../http/pool.js';
import { Refusal } from '../../http/refusal.js';
import type { Dispatcher, Lease, Turn } from './dispatcher.js';
import type { Exchange } from './exchange.js';
import { exchange, meaningOf } from './exchange.js';
import type { GatewayMetrics } from './metrics.js';
import type { Upstream } from './upstream.js';

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
