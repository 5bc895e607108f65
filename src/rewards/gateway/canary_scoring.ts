/** Asks an upstream the canary set and reports what is wrong with its scores. */
import { toChatRequest } from '../judge/chat_request.js';
import type { Owner } from '../../balance/fair_queue.js';
import type { Clock } from '../../core/clock.js';
import { sleep } from '../../core/clock.js';
import type { HttpPool } from '../../http/pool.js';
import { Deadline } from '../../core/deadline.js';
import { excerpt } from '../judge/parse.js';
import type { ListedModel } from '../judge/readiness.js';
import { dialectOf, startingTraits, type Traits } from '../judge/traits.js';
import { canaryQuestion, type Canary, type CanarySet } from './canary_set.js';
import type { Dispatcher, Lease } from './dispatcher.js';
import { DriftWatch, type CanaryFinding } from './drift.js';
import { exchange, meaningOf } from './exchange.js';
import type { GatewayMetrics } from './metrics.js';
import type { Upstream } from './upstream.js';

/** Chooses the set that suits a judge, by how its server lists the model; null for none. */
export type ChooseCanaries = (model: ListedModel) => CanarySet | null;

export interface ScoringServices {
  readonly choose: ChooseCanaries;
  /** Null asks for the first model that the upstream lists. */
  readonly model: string | null;
  readonly tolerance: number;
  readonly clock: Clock;
  readonly dispatcher: Dispatcher;
  readonly pool: HttpPool;
  readonly upstreamKey: string | null;
  readonly timeoutMs: number;
  readonly metrics: GatewayMetrics;
  readonly stop: AbortSignal;
  readonly log: (level: 'info' | 'warn', text: string) => void;
}

/** No caller has this name, which is no address, and no run, whose names begin with a letter or a digit. */
const gatewayItself: Owner = { caller: '(gateway)', run: '(gateway)' };

interface AskedModel {
  readonly model: string;
  readonly traits: Traits;
}

const roomEveryMs = 50;

export class CanaryScoring {
  readonly #watches = new Map<string, DriftWatch>();
  readonly #findings = new Map<string, CanaryFinding>();

  constructor(readonly services: ScoringServices) {}

  /** The last finding for each upstream's address. */
  get findings(): ReadonlyMap<string, CanaryFinding> {
    return this.#findings;
  }

  /** Resolves with why the upstream could not be asked; null if it answered, whatever it said. Never rejects. */
  async score(
    upstream: Upstream,
    models: readonly ListedModel[],
    traits: Traits = startingTraits[dialectOf([upstream.url])],
  ): Promise<string | null> {
    const { choose, metrics, tolerance } = this.services;
    const listed = models.find(({ id }) => id === (this.services.model ?? models[0].id));
    const set = listed === undefined ? null : choose(listed);
    if (listed === undefined || set === null) return null;
    const scores = new Map<string, readonly number[] | string>();
    // One after the other, to keep the load low for a judge that has just started or that others use.
    for (const canary of set.canaries) {
      const got = await this.#ask(upstream, { model: listed.id, traits }, canary);
      if (got === null) return `it failed while it was asked about the canary '${canary.name}'`;
      scores.set(canary.name, got);
    }
    metrics.scorings.add({ upstream: upstream.url });
    const watch = this.#watches.get(set.name) ?? new DriftWatch(set, tolerance);
    this.#watches.set(set.name, watch);
    this.#tell(upstream, watch.compare(scores));
    return null;
  }

  #tell(upstream: Upstream, finding: CanaryFinding): void {
    const { log } = this.services;
    const before = this.#findings.get(upstream.url);
    this.#findings.set(upstream.url, finding);
    for (const alarm of finding.alarms) log('warn', `ALARM ${upstream.url}: ${alarm}`);
    if (finding.alarms.length === 0 && (before?.alarms.length ?? 0) > 0) {
      log('info', `${upstream.url} scores the canaries as at first again`);
    }
  }

  /** Its scores, or why there are none; null if the upstream gave no usable reply at all. */
  async #ask(
    upstream: Upstream,
    { model, traits }: AskedModel,
    canary: Canary,
  ): Promise<readonly number[] | string | null> {
    const { clock, dispatcher, pool, upstreamKey, timeoutMs, stop } = this.services;
    const question = canaryQuestion(canary);
    const body = Buffer.from(JSON.stringify(await toChatRequest(question, model, 0, traits)));
    const end = await acquireSlot(upstream, dispatcher, stop);
    if (end === null) return null;
    const deadline = new Deadline(clock, timeoutMs, stop);
    try {
      const found = await exchange({
        url: upstream.url,
        body,
        key: upstreamKey,
        pool,
        caller: stop,
        deadline: deadline.signal,
      });
      end({ ...meaningOf(found).ending, request: canary.name });
      if (found.kind === 'failed' || found.status === 429 || found.status >= 500) return null;
      if (found.completion === null) return `HTTP ${found.status}: ${excerpt(found.body.toString('utf8', 0, 400))}`;
      const parsed = question.parse(found.completion.text);
      return parsed.ok ? parsed.scores : parsed.detail;
    } finally {
      deadline.dispose();
    }
  }
}

/** A slot at an upstream: in turn with the runs if it serves them, else as soon as there is room; null if there will be none. */
export async function acquireSlot(
  upstream: Upstream,
  dispatcher: Dispatcher,
  stop: AbortSignal,
): Promise<Lease['end'] | null> {
  if (upstream.ready) {
    const turn = await dispatcher.acquire({ ...gatewayItself, allowed: (other) => other === upstream, signal: stop });
    if (turn.kind === 'lease') return turn.lease.end;
  }
  while (!stop.aborted && upstream.limit.inFlight >= upstream.limit.cap) {
    await sleep(dispatcher.clock, roomEveryMs, stop);
  }
  return stop.aborted ? null : upstream.start();
}
