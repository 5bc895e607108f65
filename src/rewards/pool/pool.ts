/**
 * A pool of equal reward servers as one reward: items go to the server with the least to do, an item that one server fails goes to
 * the next, and what nobody answers is unscored, never a number.
 */
import { setMaxListeners } from 'node:events';
import { ConfigError } from '../../core/errors.js';
import type { Clock } from '../clock.js';
import { sleep, systemClock } from '../clock.js';
import { Deadline } from '../deadline.js';
import type { HttpPool } from '../http_pool.js';
import { createHttpPool } from '../http_pool.js';
import { Semaphore } from '../semaphore.js';
import type { ReplyItem } from '../server/wire.js';
import type { Term } from '../term.js';
import type { JudgeItem, JudgementStore, Outcome, ScoreOptions, UnscoredReason } from '../types.js';
import { attempt, type Attempt } from './attempt.js';
import { combine, type Weights } from './combine.js';
import { ItemEncoder } from './encode.js';
import { lookAtServers } from './look.js';
import { Member, Router, type Routing } from './member.js';
import { replay, toJudgement } from './recorded.js';

export interface RewardPoolOptions {
  /** Base URLs, such as http://127.0.0.1:4900. */
  readonly servers: readonly string[];
  readonly token?: string;
  /** Shares of the servers' terms in the outcome; without them the outcome is the one that the servers weigh. */
  readonly weights?: Weights | null;
  readonly routing?: Routing;
  /** Items under way at once, over all servers. */
  readonly concurrency?: number;
  /** The time that one request may take. */
  readonly attemptTimeoutMs?: number;
  /** The time that one item may take, over all its requests. */
  readonly itemTimeoutMs?: number;
  /** Requests for one item that may fail; refusals of servers that have too much to do are not counted. */
  readonly maxAttempts?: number;
  /** Where replies are kept, so that a resumed run finds them again; asked for only while scoring. */
  readonly store?: () => JudgementStore;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** Backoff after every server was tried is uniform in [0, min(cap, base * 2^round)] ("full jitter"). */
const backoffBaseMs = 250;
const backoffCapMs = 8_000;
/** A longer `Retry-After` is cut to this. */
const retryAfterCapMs = 30_000;

export class RewardPool implements Term {
  readonly name = 'remote';
  readonly #http: HttpPool;
  readonly #router: Router;
  readonly #slots: Semaphore;
  readonly #encoder = new ItemEncoder();
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #attemptTimeoutMs: number;
  readonly #itemTimeoutMs: number;
  readonly #maxAttempts: number;
  readonly #weights: Weights | null;
  readonly #store: (() => JudgementStore) | null;
  /** What the servers score with; null before the first of them has said so. */
  #reward: string | null = null;
  #closing: Promise<void> | null = null;

  /** Raises ConfigError where there is no server, or an address is not one of HTTP. */
  constructor(options: RewardPoolOptions) {
    const urls = [...new Set(options.servers.map(serverUrl))];
    if (urls.length === 0) throw new ConfigError('a pool of reward servers needs the address of at least one');
    const concurrency = options.concurrency ?? 64;
    const { token } = options;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#attemptTimeoutMs = options.attemptTimeoutMs ?? 300_000;
    this.#itemTimeoutMs = options.itemTimeoutMs ?? 900_000;
    this.#maxAttempts = options.maxAttempts ?? 5;
    this.#weights = options.weights ?? null;
    this.#store = options.store ?? null;
    this.#slots = new Semaphore(concurrency);
    this.#http = createHttpPool({ connections: concurrency, ...(token === undefined ? {} : { secret: token }) });
    this.#headers = {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    this.#router = new Router(
      urls.map((url) => new Member(url, this.#clock)),
      options.routing ?? 'least_loaded',
    );
  }

  /**
   * Returns when at least one server is ready, looking again until `maxWaitMs` are over. Raises EndpointError (exit code 3) where none
   * is, ConfigError where two servers score with different settings or lack a term that is weighed.
   */
  async ready(maxWaitMs: number, signal?: AbortSignal): Promise<void> {
    const urls = this.#router.members.map(({ url }) => url);
    this.#reward = await lookAtServers(urls, {
      http: this.#http,
      headers: this.#headers,
      weights: this.#weights,
      maxWaitMs,
      clock: this.#clock,
      ...(signal === undefined ? {} : { signal }),
    });
  }

  async score(item: JudgeItem, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Outcome> {
    const stored = this.#store === null ? null : replay(item, this.#store(), options.askAgain === true);
    if (stored !== null) return 'kind' in stored ? stored : combine(stored.reply, this.#weights);
    return this.#slots.run(() => this.#ask(item, signal));
  }

  /** Closes the connections; nothing may be scored afterwards. */
  close(): Promise<void> {
    return (this.#closing ??= this.#http.close());
  }

  async #ask(item: JudgeItem, signal?: AbortSignal): Promise<Outcome> {
    if (isAborted(signal)) return calledOff;
    const started = this.#clock.now();
    const deadline = new Deadline(this.#clock, this.#itemTimeoutMs, signal);
    // Every request of the item hangs on it.
    setMaxListeners(0, deadline.signal);
    try {
      const { found, attempts } = await this.#send(await this.#encoder.body(item), item.key, deadline);
      if (isAborted(signal)) return calledOff;
      const latencyMs = Math.round(this.#clock.now() - started);
      this.#store?.().put(toJudgement(item, found, { attempts, latencyMs }));
      if (found.kind !== 'item') return { kind: 'unscored', reason: found.reason, detail: found.detail, parts: {} };
      return combine(found.item, this.#weights);
    } finally {
      deadline.dispose();
    }
  }

  /** Asks one server after another until one answers, all were tried often enough, or the item's time is over. */
  async #send(
    body: string,
    key: string,
    deadline: Deadline,
  ): Promise<{ readonly found: Attempt; readonly attempts: number }> {
    const tried = new Set<Member>();
    let last: Failure | null = null;
    let attempts = 0;
    let failures = 0;
    for (let round = 0; ;) {
      if (deadline.over) return { found: last ?? failure('timeout', 'no server answered in time'), attempts };
      const member = this.#router.pick(tried);
      if (member === null) {
        const busyMs = this.#router.shortestWaitMs();
        // Servers that keep failing are left alone for a while, and so is the caller, who is told at once.
        if (tried.size === 0 && busyMs === null) {
          return { found: last ?? failure('connection', 'not asked: all reward servers failed just now'), attempts };
        }
        tried.clear();
        await sleep(this.#clock, (busyMs ?? 0) + this.#jitterMs(round++), deadline.signal);
        continue;
      }
      attempts++;
      const found = await this.#attempt(member, body, key, deadline);
      if (found.kind === 'item' || found.kind === 'give_up') return { found, attempts };
      last = found;
      tried.add(member);
      if (found.kind === 'elsewhere' && ++failures >= this.#maxAttempts) return { found, attempts };
    }
  }

  async #attempt(member: Member, body: string, key: string, item: Deadline): Promise<Attempt> {
    const deadline = new Deadline(this.#clock, this.#attemptTimeoutMs, item.signal);
    member.underWay++;
    try {
      const request = { url: member.url, headers: this.#headers, body, key };
      const found = this.#checked(await attempt(this.#http, request, deadline), member);
      // What the caller called off says nothing about the server.
      if (item.over && found.kind !== 'item') return found;
      if (found.kind === 'busy') member.busyFor(Math.min(retryAfterCapMs, found.retryAfterMs ?? 1_000));
      else if (found.kind === 'elsewhere') member.failed();
      else member.answered();
      return found;
    } finally {
      member.underWay--;
      deadline.dispose();
    }
  }

  /** A server that scores otherwise than the others would mix two rewards in one run. */
  #checked(found: Attempt, { url }: Member): Attempt {
    if (found.kind !== 'item') return found;
    this.#reward ??= found.reward;
    const missing = this.#weights === null ? undefined : missingTerm(found.item, this.#weights);
    if (found.reward === this.#reward && missing === undefined) return found;
    const why =
      missing === undefined
        ? 'it scores with other settings than the rest of the pool'
        : `it lacks the term '${missing}'`;
    return { kind: 'elsewhere', reason: 'server_error', detail: `${url}: ${why}` };
  }

  #jitterMs(round: number): number {
    return this.#random() * Math.min(backoffCapMs, backoffBaseMs * 2 ** round);
  }
}

type Failure = Exclude<Attempt, { kind: 'item' }>;

function failure(reason: UnscoredReason, detail: string): Failure {
  return { kind: 'elsewhere', reason, detail };
}

const calledOff: Outcome = { kind: 'unscored', reason: 'aborted', detail: 'called off', parts: {} };

/** A call, since a signal's state changes while the compiler believes it known. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

function missingTerm(item: ReplyItem, weights: Weights): string | undefined {
  return Object.keys(weights).find((name) => !Object.hasOwn(item.terms, name));
}

/** The base URL without a slash at its end, and without the `/score` that some write. */
function serverUrl(text: string): string {
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  if (url === null || !['http:', 'https:'].includes(url.protocol) || url.username !== '' || url.password !== '') {
    throw new ConfigError(
      `'${text}' is not the address of a reward server; allowed: http:// or https:// URLs without a password`,
      {
        next: 'Write it like http://127.0.0.1:4900; a token goes into an environment variable.',
      },
    );
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '').replace(/\/score$/, '')}`;
}
