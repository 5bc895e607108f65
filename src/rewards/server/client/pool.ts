/**
 * A pool of equal reward servers as one reward: items go to the server with the least to do, an item that one server fails goes to
 * the next, as does one that a server leaves unscored because its judge is away; and what nobody can score is unscored, never a number.
 */
import type { AskPolicy, AttemptResult } from '../../../balance/ask.js';
import { Breaker } from '../../../balance/breaker.js';
import { Member, type Routing } from '../../../balance/member.js';
import { Remote, attemptResult, type ReplyMeaning } from '../../../balance/remote.js';
import { ConfigError, EditrlError } from '../../../core/errors.js';
import { checkedKey } from '../../../http/key.js';
import type { Clock } from '../../../core/clock.js';
import { systemClock } from '../../../core/clock.js';
import { Deadline } from '../../../core/deadline.js';
import type { HttpPool } from '../../../http/pool.js';
import { createHttpPool } from '../../../http/pool.js';
import type { CanaryResult } from '../../judge/client.js';
import { isJudgeAbsent } from '../../score/iteration.js';
import pLimit, { type LimitFunction } from 'p-limit';
import type { ReplyItem } from '../wire.js';
import type { Term, TermRecords } from '../../terms/term.js';
import type { JudgeItem, Judgement, JudgementStore, Outcome, ScoreOptions } from '../../score/types.js';
import { attempt, type Attempt, type AttemptRequest } from './attempt.js';
import { combine, type Weights } from './recorded.js';
import { ItemEncoder } from './encode.js';
import { checkRewardServers, type CheckOptions } from './check.js';
import type { ProtocolName } from '../../schema/remote_protocols.js';
import { protocolOf, type Protocol } from './protocol.js';
import { recordedReply, replay, toJudgement } from './recorded.js';

export interface RewardPoolOptions {
  /** Base URLs, such as http://127.0.0.1:4900. */
  readonly servers: readonly string[];
  readonly token?: string;
  /** Shares of the servers' terms in the outcome; without them the outcome is the one that the servers weigh. */
  readonly weights?: Weights | null;
  /** The servers' protocol; default: this program's own. */
  readonly protocol?: ProtocolName;
  readonly routing?: Routing;
  /** Items under way at once, over all servers. */
  readonly concurrency?: number;
  /** The time that one request may take. */
  readonly attemptTimeoutMs?: number;
  /** The time that one item may take, over all its requests. */
  readonly itemTimeoutMs?: number;
  /** Requests for one item that may fail; refusals of servers that have too much to do are not counted. */
  readonly maxAttempts?: number;
  /** Where replies are stored, so that a resumed run finds them again; called only while scoring. */
  readonly store?: () => JudgementStore;
  /** Replies that a run has recorded, used where the servers still score with the same settings, or are not asked. */
  readonly records?: Pick<TermRecords, 'offline' | 'reply'>;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

const defaultPolicy: AskPolicy = {
  maxAttempts: 5,
  attemptTimeoutMs: 300_000,
  backoffBaseMs: 250,
  backoffCapMs: 8_000,
  retryAfterCapMs: 30_000,
};
/** Items in a row that a server fails, after which it is left alone (or, where only its judge fails, asked after the others), and for how long. */
const failureLimit = 3;
const pauseMs = 10_000;

class RewardServer extends Member {
  readonly judge: Breaker;

  /** @param url base URL, without a slash at its end. */
  constructor(url: string, clock: Clock, cap: number) {
    // As many items as it may have at once: an error that it answers with may be theirs, and costs no wait.
    super(url, clock, { cap, failures: failureLimit, doubts: cap, pauseMs });
    this.judge = new Breaker(clock, failureLimit, pauseMs);
  }
}

export class RewardPool implements Term {
  readonly name = 'remote';
  readonly #http: HttpPool;
  readonly #remote: Remote<RewardServer, Asked, Attempt>;
  readonly #slots: LimitFunction;
  readonly #encoder = new ItemEncoder();
  readonly #protocol: Protocol;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #itemTimeoutMs: number;
  readonly #weights: Weights | null;
  readonly #store: (() => JudgementStore) | null;
  readonly #records: Pick<TermRecords, 'offline' | 'reply'> | null;
  /** The identity of what the servers score with; null before the first of them has said so. */
  #reward: string | null = null;
  #closing: Promise<void> | null = null;

  /** Raises ConfigError where there is no server, an address is not one of HTTP, or no header carries the token. */
  constructor(options: RewardPoolOptions) {
    const urls = [...new Set(options.servers.map(serverUrl))];
    if (urls.length === 0) throw new ConfigError('a pool of reward servers needs the address of at least one');
    const concurrency = options.concurrency ?? 64;
    const token = checkedKey(options.token, 'the token of the reward servers');
    this.#clock = options.clock ?? systemClock;
    const { maxAttempts = defaultPolicy.maxAttempts, attemptTimeoutMs = defaultPolicy.attemptTimeoutMs } = options;
    this.#itemTimeoutMs = options.itemTimeoutMs ?? 900_000;
    this.#weights = options.weights ?? null;
    this.#protocol = protocolOf(options.protocol ?? 'editrl', this.#weights);
    this.#store = options.store ?? null;
    this.#records = options.records ?? null;
    this.#slots = pLimit(concurrency);
    this.#http = createHttpPool({ connections: concurrency, secret: token ?? null });
    this.#headers = {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    this.#remote = new Remote({
      members: urls.map((url) => new RewardServer(url, this.#clock, concurrency)),
      policy: { ...defaultPolicy, maxAttempts, attemptTimeoutMs },
      attempt: (server, request, within) => this.#ask(server, request, within),
      prefers: ({ judge }) => !judge.blocks,
      routing: options.routing,
      clock: this.#clock,
      random: options.random,
    });
  }

  /**
   * Returns when at least one server is ready, looking again until `maxWaitMs` are over. Raises EndpointError (exit code 3) where none
   * is, ConfigError where two servers score with different settings or lack a term that is weighed.
   */
  async ready(maxWaitMs: number, signal?: AbortSignal): Promise<void> {
    this.#reward = await this.#look({ maxWaitMs, judge: false }, signal);
  }

  /** Whether at least one server is ready now, its judge answers, and it scores with the same settings as before. */
  async canary(signal?: AbortSignal): Promise<CanaryResult> {
    try {
      const reward = await this.#look({ maxWaitMs: 0, judge: true }, signal);
      if (this.#reward === null || reward === this.#reward) return { ok: true };
      return { ok: false, detail: 'the reward servers score with other settings than before' };
    } catch (error) {
      if (error instanceof EditrlError) return { ok: false, detail: error.message };
      throw error;
    }
  }

  async score(item: JudgeItem, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Outcome> {
    const ruled = this.#protocol.known(item);
    if (ruled !== null) return ruled;
    const known = this.#known(item, options.askAgain === true);
    if (known !== null) return 'kind' in known ? known : combine(known.reply, this.#weights);
    if (this.#records?.offline === true) {
      return { kind: 'unscored', reason: 'aborted', detail: `${item.key}: not recorded`, parts: {} };
    }
    return this.#slots(() => this.#score(item, signal));
  }

  /** What is stored for an item, or recorded by the run whose episodes are scored again. */
  #known(item: JudgeItem, askAgain: boolean): { readonly reply: ReplyItem } | Outcome | null {
    const stored = this.#store === null ? null : replay(item, this.#store(), askAgain);
    const records = this.#records;
    if (stored !== null || records === null) return stored;
    const isUsable = (judgement: Judgement): boolean => {
      const reply = recordedReply(judgement);
      const lacks = reply !== null && this.#weights !== null && missingTerm(reply, this.#weights) !== undefined;
      return !lacks && (records.offline || judgement.model === this.#reward);
    };
    return replay(item, { find: (key, hash) => records.reply(key, hash, isUsable) }, askAgain);
  }

  /** The name of what the servers score with. Raises as `ready` does. */
  #look(wanted: Pick<CheckOptions, 'maxWaitMs' | 'judge'>, signal?: AbortSignal): Promise<string> {
    return checkRewardServers(this.#remote.urls, {
      http: this.#http,
      protocol: this.#protocol,
      headers: this.#headers,
      weights: this.#weights,
      ...wanted,
      clock: this.#clock,
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /** Closes the connections; the pool must not be used afterwards. */
  close(): Promise<void> {
    return (this.#closing ??= this.#http.close());
  }

  async #score(item: JudgeItem, signal?: AbortSignal): Promise<Outcome> {
    if (isAborted(signal)) return calledOff;
    const started = this.#clock.now();
    const deadline = new Deadline(this.#clock, this.#itemTimeoutMs, signal);
    try {
      const { body, read } = this.#protocol;
      const request = { headers: this.#headers, body: await body(this.#encoder, item), key: item.key, read };
      const { reply, attempts, spared } = await this.#remote.ask(request, deadline);
      const found = reply ?? (spared ? allFailed : late);
      if (isAborted(signal)) return calledOff;
      const latencyMs = Math.round(this.#clock.now() - started);
      this.#store?.().put(toJudgement(item, found, { attempts, latencyMs }));
      if (found.kind !== 'item') return { kind: 'unscored', reason: found.reason, detail: found.detail, parts: {} };
      return combine(found.item, this.#weights);
    } finally {
      deadline.dispose();
    }
  }

  /** The result of this server's reply. An outcome that is unscored because the judge is away is better than no reply. */
  async #ask(server: RewardServer, request: Asked, within: Deadline): Promise<AttemptResult<Attempt>> {
    server.judge.asked();
    const reply = this.#checked(await attempt(this.#http, { ...request, url: server.url }, within), server);
    if (reply.kind !== 'item') return attemptResult(refusals[reply.kind], reply, reply.retryAfterMs);
    const away = this.#judgeIsAway(reply.item);
    if (away) server.judge.failed(request.key);
    else server.judge.succeeded();
    return attemptResult(away ? 'second_best' : 'answered', reply);
  }

  /** Whether the requested outcome is unscored for a reason that another server's judge may not share. */
  #judgeIsAway(item: ReplyItem): boolean {
    const outcome = combine(item, this.#weights);
    return outcome.kind === 'unscored' && isJudgeAbsent[outcome.reason];
  }

  /** A server that scores otherwise than the others would mix two rewards in one run. */
  #checked(found: Attempt, { url }: RewardServer): Attempt {
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
}

type Asked = Omit<AttemptRequest, 'url'>;

const refusals: Readonly<Record<Exclude<Attempt['kind'], 'item'>, ReplyMeaning>> = {
  busy: 'busy',
  elsewhere: 'failed',
  failed: 'doubtful',
  give_up: 'refused',
};

const late: Attempt = { kind: 'elsewhere', reason: 'timeout', detail: 'no server answered in time' };
const allFailed: Attempt = {
  kind: 'elsewhere',
  reason: 'connection',
  detail: 'not asked: all reward servers failed just now',
};

const calledOff: Outcome = { kind: 'unscored', reason: 'aborted', detail: 'called off', parts: {} };

/** A function call, because the compiler would assume that a signal's state cannot change. */
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
