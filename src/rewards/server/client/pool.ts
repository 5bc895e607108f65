import { REPLY_QUERY } from '../../../core/remote/exchange.js';
/**
 * A pool of equal reward servers as one reward: items go to the server with the least to do, an item that one server fails goes to
 * the next, as does one that a server leaves unscored because its judge is away; and what nobody can score is unscored, never a number.
 */
import {
  type AskPolicy,
  type AttemptResult,
  Remote,
  attemptResult,
  type ReplyMeaning,
  untilReady,
} from '../../../core/remote/remote.js';
import { Breaker, Member, type Routing } from '../../../core/remote/member.js';
import { ConfigError, EditrlError, EndpointError } from '../../../core/errors.js';
import { checkedKey } from '../../../core/http/key.js';
import { type Clock, Deadline, systemClock } from '../../../core/clock.js';
import { type HttpPool, createHttpPool, type TextResponse } from '../../../core/http/pool.js';
import type { CanaryResult } from '../../judge/client.js';
import { isJudgeAbsent } from '../../score/iteration.js';
import pLimit, { type LimitFunction } from 'p-limit';
import { type ReplyItem, type HealthReply, fromWire, replyItemSchema, type ProtocolName } from '../wire.js';
import type { Term, TermRecords } from '../../terms/term.js';
import type { JudgeItem, Judgement, JudgementStore, Outcome, ScoreOptions } from '../../score/types.js';
import { hashItem, protocolOf, type Protocol } from './protocol.js';
import { byStatus, retryAfterMs, type StatusTable } from '../../../core/http/meaning.js';
import { causeOf } from '../../../core/http/request.js';
import { excerpt } from '../../judge/parse.js';
import { weightedSum } from '../../score/weighted.js';
import { type Attempt, parseJson, type Weights } from './protocol.js';

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
      const request = { headers: this.#headers, body: await body(item), key: item.key, read };
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

export interface AttemptRequest {
  /** Base URL of the server. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The key of the item in the body, which the reply has to name. */
  readonly key: string;
  /** What a reply with a status of success means. */
  readonly read: (text: string, url: string, key: string) => Attempt;
}

/** Never rejects: whatever a server does is a result. */
export async function attempt(http: HttpPool, request: AttemptRequest, deadline: Deadline): Promise<Attempt> {
  const { url, headers, body, key, read } = request;
  let response: TextResponse;
  let text: string;
  try {
    response = await http.fetch(`${url}/score`, { method: 'POST', headers, body, signal: deadline.signal });
    text = await response.text();
  } catch (error) {
    if (deadline.over) return { kind: 'elsewhere', reason: 'timeout', detail: `${url}: no answer in time` };
    return { kind: 'elsewhere', reason: 'connection', detail: `${url}: ${causeOf(error)}` };
  }
  return response.ok ? read(text, url, key) : readRefusal(response, text, url);
}

type Refusal = Exclude<Attempt, { kind: 'item' }>;

const badRequest = { kind: 'give_up', reason: 'bad_request' } as const;
const STATUSES: StatusTable<Pick<Refusal, 'kind' | 'reason'>> = {
  // These say something about the request, not about the server.
  400: badRequest,
  413: badRequest,
  415: badRequest,
  422: badRequest,
  429: { kind: 'busy', reason: 'rate_limited' },
  500: { kind: 'failed', reason: 'server_error' },
  '5xx': { kind: 'elsewhere', reason: 'server_error' },
  // A wrong token or address is as good as a server that is down: another one may have the right one.
  rest: { kind: 'elsewhere', reason: 'bad_request' },
};

function readRefusal(response: TextResponse, text: string, url: string): Attempt {
  const { status } = response;
  const detail = `${url}: HTTP ${status} ${messageOf(text)}`;
  const refusal = { ...byStatus(STATUSES, status), detail };
  const wait = refusal.kind === 'busy' ? retryAfterMs((name) => response.headers.get(name)) : null;
  return wait === null ? refusal : { ...refusal, retryAfterMs: wait };
}

function messageOf(text: string): string {
  const body = parseJson(text) as { readonly error?: { readonly message?: unknown } } | null | undefined;
  const message = typeof body === 'object' ? body?.error?.message : undefined;
  return excerpt(typeof message === 'string' ? message : text);
}

export interface CheckOptions {
  readonly http: HttpPool;
  readonly protocol: Protocol;
  readonly headers: Readonly<Record<string, string>>;
  /** The terms that the servers have to hold. */
  readonly weights: Weights | null;
  /** Whether the judge behind a server has to answer as well. */
  readonly judge: boolean;
  readonly maxWaitMs: number;
  readonly clock: Clock;
  readonly signal?: AbortSignal;
}

const lookEveryMs = 1_000;
const lookTimeoutMs = 10_000;

/** `final`: waiting does not help. */
type RewardServerCheck =
  | { readonly ready: true; readonly url: string; readonly health: HealthReply }
  | { readonly ready: false; readonly url: string; readonly found: string; readonly final: boolean };

/** Returns the identity of what the servers score with, once one of them is ready. Raises as described at `RewardPool.ready`. */
export async function checkRewardServers(urls: readonly string[], options: CheckOptions): Promise<string> {
  const { clock, maxWaitMs, signal } = options;
  const look = async () => {
    const looks = await Promise.all(urls.map((url) => checkRewardServer(url, options)));
    const ready = looks.filter((look) => look.ready);
    if (ready.length > 0) return { ready };
    const failed = looks.filter((look) => !look.ready);
    const error = new EndpointError(`no reward server is ready: ${failed.map(({ found }) => found).join('; ')}`, {
      where: urls.join(', '),
      next: 'Start one with `editrl reward-server`, check address and token, then run the same command again.',
    });
    return { error, final: failed.every(({ final }) => final) };
  };
  return agreed(await untilReady(look, { clock, maxWaitMs, signal, pauseMs: lookEveryMs }), options.weights);
}

async function checkRewardServer(
  url: string,
  { http, protocol, headers, judge, clock, signal }: CheckOptions,
): Promise<RewardServerCheck> {
  const deadline = new Deadline(clock, lookTimeoutMs, signal);
  const no = (found: string, final: boolean): RewardServerCheck => ({
    ready: false,
    url,
    found: `${url}: ${found}`,
    final,
  });
  try {
    const found = await protocol.look({ http, url, headers, judge, signal: deadline.signal });
    return 'health' in found ? { ready: true, url, health: found.health } : no(found.found, found.final);
  } catch (error) {
    if (deadline.over) return no('no answer in time', false);
    return no(causeOf(error), false);
  } finally {
    deadline.dispose();
  }
}

function agreed(ready: readonly Extract<RewardServerCheck, { ready: true }>[], weights: Weights | null): string {
  const [first, ...others] = ready;
  const other = others.find(({ health }) => health.reward !== first.health.reward);
  if (other !== undefined) {
    throw new ConfigError(
      `two servers of one pool score with different settings: ${describe(first.health)} and ${describe(other.health)}`,
      { where: `${first.url}, ${other.url}`, next: 'Start all servers of a pool with the same settings.' },
    );
  }
  const held = (first.health.terms ?? []).map(({ name }) => name);
  const missing = Object.keys(weights ?? {}).find((name) => !held.includes(name));
  if (missing !== undefined) {
    throw new ConfigError(`the reward servers hold no term '${missing}'; they hold: ${held.join(', ')}`, {
      where: first.url,
      next: 'Weigh terms that they hold, or start them with this one.',
    });
  }
  return first.health.reward ?? '';
}

function describe({ terms = [], reward = '' }: HealthReply): string {
  return `${terms.map(({ name, weight }) => `${weight} ${name}`).join(' + ')} (${reward.slice(0, 12)})`;
}

function keyOf(item: JudgeItem): string {
  return `${item.key}/${REPLY_QUERY}`;
}

/**
 * What is stored for an item: a server's reply, the outcome of an item that got none, or null where nothing is stored (or
 * what is stored gave no score and shall be asked for again).
 */
export function replay(
  item: JudgeItem,
  store: Pick<JudgementStore, 'find'>,
  askAgain: boolean,
): { readonly reply: ReplyItem } | Outcome | null {
  const stored = store.find(keyOf(item), hashItem(item));
  if (stored === undefined || (stored.problem !== null && askAgain)) return null;
  const reply = recordedReply(stored);
  if (reply !== null) return { reply };
  if (stored.problem === null) return null;
  const detail = stored.detail ?? 'as recorded: no reward server answered';
  return { kind: 'unscored', reason: stored.problem, detail, parts: {} };
}

/** The reply that a record holds; null where it holds none. */
export function recordedReply({ text }: Judgement): ReplyItem | null {
  const reply = replyItemSchema.safeParse(parseJson(text));
  return reply.success ? reply.data : null;
}

/** The record of an item's last exchange: its text is the item's part of the server's reply, its model what the server scores with. */
export function toJudgement(
  item: JudgeItem,
  found: Attempt,
  { attempts, latencyMs }: Pick<Judgement, 'attempts' | 'latencyMs'>,
): Judgement {
  const base = { key: keyOf(item), requestHash: hashItem(item), attempts, latencyMs };
  if (found.kind !== 'item') {
    return { ...base, model: '', text: '', problem: found.reason, detail: found.detail, scores: [] };
  }
  const { outcome } = found.item;
  return {
    ...base,
    model: found.reward,
    text: JSON.stringify(found.item),
    problem: outcome.kind === 'unscored' ? outcome.reason : null,
    ...(outcome.kind === 'unscored' ? { detail: outcome.detail } : {}),
    scores: outcome.kind === 'unscored' ? [] : [outcome.value],
  };
}

/**
 * The outcome that the server weighed; with weights, the sum of the terms that they name: `sum_k w_k * normalised_k`. Parts keep the names
 * that the server gives. The reply has every term that is weighed.
 */
export function combine(reply: ReplyItem, weights: Weights | null): Outcome {
  if (weights === null) return fromWire(reply.outcome);
  return weightedSum(
    Object.entries(weights).map(([name, weight]) => ({ name, weight, outcome: fromWire(reply.terms[name]) })),
  );
}
