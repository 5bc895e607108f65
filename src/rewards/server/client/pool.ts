/**
 * A pool of equal reward servers as one reward. Items go to the server with the least to do. An item that one server fails goes to the next,
 * and so does one that a server leaves unscored because its judge is down. An item that no server scores is unscored, never a number.
 */
import pLimit, { type LimitFunction } from 'p-limit';
import { type Clock, Deadline, systemClock } from '../../../core/clock.js';
import { ConfigError, EditrlError, EndpointError } from '../../../core/errors.js';
import { checkedKey } from '../../../core/http/key.js';
import { byStatus, retryAfterMs, type StatusTable } from '../../../core/http/status.js';
import { type HttpPool, createHttpPool } from '../../../core/http/pool.js';
import { causeOf } from '../../../core/http/request.js';
import { imageId, pngToSend, sha256, type RgbImage } from '../../../core/images/image.js';
import { REPLY_QUERY } from '../../../core/remote/exchange.js';
import { Breaker, Member } from '../../../core/remote/member.js';
import {
  type AskPolicy,
  type AttemptResult,
  Remote,
  attemptResult,
  type ReplyMeaning,
  untilReady,
} from '../../../core/remote/remote.js';
import type { CanaryResult } from '../../judge/client.js';
import { excerpt } from '../../judge/parse.js';
import { isJudgeAbsent } from '../../score/iteration.js';
import type { JudgeItem, Judgement, JudgementStore, Outcome, ScoreOptions, UnscoredReason } from '../../score/types.js';
import { weightedNames, weightedSum } from '../../score/weighted.js';
import type { Term, TermRecords } from '../../terms/term.js';
import { LINES } from '../request.js';
import { fromWire, healthSchema, replyItemSchema, REWARD_HEADER } from '../wire.js';
import type { HealthReply, ReplyItem, RequestItem } from '../wire.js';

/** Shares by term name. They sum to 1. */
type Weights = Readonly<Record<string, number>>;

export interface RewardPoolOptions {
  /** Base URLs, such as http://127.0.0.1:4876. */
  readonly servers: readonly string[];
  readonly token?: string;
  /** Shares of the servers' terms in the outcome. Without them, the outcome has the servers' own weights. */
  readonly weights?: Weights | null;
  /** Items in flight over all servers. */
  readonly concurrency?: number;
  /** Time limit of one request. */
  readonly attemptTimeoutMs?: number;
  /** Time limit of one item over all its requests. */
  readonly itemTimeoutMs?: number;
  /** Failed requests per item. Answers of busy servers do not count. */
  readonly maxAttempts?: number;
  /** The store of replies for a resumed run. Called only while scoring. */
  readonly store?: () => JudgementStore;
  /** Replies that a run recorded. They are used if the servers still have the same settings, or if no server may be asked. */
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
/** Number of failed items in a row after which a server is skipped for the pause. If only its judge fails, the other servers are used first. */
const FAILURE_LIMIT = 3;
const PAUSE_MS = 10_000;
const CHECK_INTERVAL_MS = 1_000;
const CHECK_TIMEOUT_MS = 10_000;

class RewardServer extends Member {
  readonly judge: Breaker;

  /** @param url base URL without a trailing slash. */
  constructor(url: string, clock: Clock, cap: number) {
    // An error reply may be the item's fault, so it takes a full load of them to doubt the server.
    super(url, clock, { cap, failures: FAILURE_LIMIT, doubts: cap, pauseMs: PAUSE_MS });
    this.judge = new Breaker(clock, FAILURE_LIMIT, PAUSE_MS);
  }
}

/** One server's answer about one item. `reward` identifies the settings that it scores with. */
type Answer =
  | { readonly kind: 'item'; readonly item: ReplyItem; readonly reward: string }
  | { readonly kind: 'none'; readonly reason: UnscoredReason; readonly detail: string };

interface ItemRequest {
  readonly key: string;
  readonly body: string;
}

/** The result of checking a server. `final`: waiting does not help. */
type ServerCheck =
  { readonly url: string; readonly health: HealthReply } | { readonly found: string; readonly final: boolean };

export class RewardPool implements Term {
  readonly name = 'remote';
  readonly #http: HttpPool;
  readonly #remote: Remote<RewardServer, ItemRequest, Answer>;
  readonly #slots: LimitFunction;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #clock: Clock;
  readonly #itemTimeoutMs: number;
  readonly #weights: Weights | null;
  readonly #store: (() => JudgementStore) | null;
  readonly #records: Pick<TermRecords, 'offline' | 'reply'> | null;
  /** Identifies the servers' settings. Null until the first server reports them. */
  #reward: string | null = null;
  #closing: Promise<void> | null = null;

  /** Raises ConfigError if there is no server, an address is not HTTP, or the token cannot be sent in a header. */
  constructor(options: RewardPoolOptions) {
    const urls = [...new Set(options.servers.map(serverUrl))];
    if (urls.length === 0) throw new ConfigError('a pool of reward servers needs at least one address');
    const { concurrency = 64, maxAttempts = defaultPolicy.maxAttempts } = options;
    const token = checkedKey(options.token, 'the token of the reward servers');
    const clock = options.clock ?? systemClock;
    this.#clock = clock;
    this.#itemTimeoutMs = options.itemTimeoutMs ?? 900_000;
    this.#weights = options.weights ?? null;
    this.#store = options.store ?? null;
    this.#records = options.records ?? null;
    this.#slots = pLimit(concurrency);
    this.#http = createHttpPool({ connections: concurrency, secret: token ?? null });
    this.#headers = {
      'content-type': LINES,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    const attemptTimeoutMs = options.attemptTimeoutMs ?? defaultPolicy.attemptTimeoutMs;
    this.#remote = new Remote({
      members: urls.map((url) => new RewardServer(url, clock, concurrency)),
      policy: { ...defaultPolicy, maxAttempts, attemptTimeoutMs },
      attempt: (server, request, within) => this.#ask(server, request, within),
      prefers: ({ judge }) => !judge.blocks,
      clock,
      random: options.random,
    });
  }

  /**
   * Returns when at least one server is ready, checking until `maxWaitMs` is over. Raises EndpointError (exit code 3) if none is, and
   * ConfigError if two servers have different settings or lack a weighted term.
   */
  async ready(maxWaitMs: number, signal?: AbortSignal): Promise<void> {
    this.#reward = await this.#check({ maxWaitMs, judge: false }, signal);
  }

  /** Whether at least one server is ready now, its judge answers, and its settings have not changed. */
  async canary(signal?: AbortSignal): Promise<CanaryResult> {
    try {
      const reward = await this.#check({ maxWaitMs: 0, judge: true }, signal);
      if (this.#reward === null || reward === this.#reward) return { ok: true };
      return { ok: false, detail: 'the settings of the reward servers have changed' };
    } catch (error) {
      if (error instanceof EditrlError) return { ok: false, detail: error.message };
      throw error;
    }
  }

  async score(item: JudgeItem, signal?: AbortSignal, options: ScoreOptions = {}): Promise<Outcome> {
    const known = this.#known(item, options.askAgain === true);
    if (known !== null) return 'kind' in known ? known : this.#outcomeOf(known);
    if (this.#records?.offline === true) return unscored('aborted', `${item.key}: not recorded`);
    return this.#slots(() => this.#score(item, signal));
  }

  /** Closes the connections. The pool must not be used afterwards. */
  close(): Promise<void> {
    return (this.#closing ??= this.#http.close());
  }

  /** The stored reply for an item, or the reply recorded by the run that is rescored. */
  #known(item: JudgeItem, askAgain: boolean): ReplyItem | Outcome | null {
    const stored = this.#store === null ? null : replay(item, this.#store(), askAgain);
    const records = this.#records;
    if (stored !== null || records === null) return stored;
    const isUsable = (judgement: Judgement): boolean => {
      const reply = recordedReply(judgement);
      if (reply !== null && this.#missingTerm(reply) !== undefined) return false;
      return records.offline || judgement.model === this.#reward;
    };
    return replay(item, { find: (key, hash) => records.reply(key, hash, isUsable) }, askAgain);
  }

  async #score(item: JudgeItem, signal?: AbortSignal): Promise<Outcome> {
    if (isAborted(signal)) return cancelled;
    const started = this.#clock.now();
    const deadline = new Deadline(this.#clock, this.#itemTimeoutMs, signal);
    try {
      const request = { key: item.key, body: await bodyOf(item) };
      const { reply, attempts, skipped } = await this.#remote.ask(request, deadline);
      const found = reply ?? (skipped ? allFailed : late);
      if (isAborted(signal)) return cancelled;
      const latencyMs = Math.round(this.#clock.now() - started);
      this.#store?.().put(toJudgement(item, found, { attempts, latencyMs }));
      return found.kind === 'item' ? this.#outcomeOf(found.item) : unscored(found.reason, found.detail);
    } finally {
      deadline.dispose();
    }
  }

  /** Makes one request. An outcome that is unscored because the judge is down is better than no reply. */
  async #ask(server: RewardServer, request: ItemRequest, within: Deadline): Promise<AttemptResult<Answer>> {
    server.judge.requested();
    const result = await this.#request(server.url, request, within);
    if (result.reply.kind !== 'item') return result;
    const outcome = this.#outcomeOf(result.reply.item);
    const isJudgeDown = outcome.kind === 'unscored' && isJudgeAbsent[outcome.reason];
    if (isJudgeDown) server.judge.failed(request.key);
    else server.judge.succeeded();
    return isJudgeDown ? attemptResult('second_best', result.reply) : result;
  }

  /** Never rejects. */
  async #request(url: string, { key, body }: ItemRequest, within: Deadline): Promise<AttemptResult<Answer>> {
    const none = (meaning: ReplyMeaning, reason: UnscoredReason, found: string, waitMs: number | null = null) =>
      attemptResult<Answer>(meaning, { kind: 'none', reason, detail: `${url}: ${found}` }, waitMs);
    try {
      const { signal } = within;
      const response = await this.#http.fetch(`${url}/v1/score`, {
        method: 'POST',
        headers: this.#headers,
        body,
        signal,
      });
      const text = await response.text();
      const line = parseJson(text);
      const status = statusOf(line) ?? response.status;
      if (status !== 200) {
        const [meaning, reason] = byStatus(STATUSES, status);
        const waitMs = meaning === 'busy' ? retryAfterMs((name) => response.headers.get(name)) : null;
        return none(meaning, reason, `HTTP ${status} ${errorIn(text)}`, waitMs);
      }
      const reply = replyItemSchema.safeParse(line);
      const reward = response.headers.get(REWARD_HEADER);
      if (!reply.success || reward === null) {
        return none('failed', 'server_error', `not a reward server's reply: ${excerpt(text)}`);
      }
      const item = reply.data;
      if (item.key !== key) return none('failed', 'server_error', 'replied about another item');
      // A server with other settings would mix two rewards in one run.
      this.#reward ??= reward;
      const missing = this.#missingTerm(item);
      if (missing !== undefined) return none('failed', 'server_error', `lacks the term '${missing}'`);
      if (reward !== this.#reward) {
        return none('failed', 'server_error', 'has other settings than the rest of the pool');
      }
      return attemptResult<Answer>('answered', { kind: 'item', item, reward });
    } catch (error) {
      if (within.over) return none('failed', 'timeout', 'no answer in time');
      return none('failed', 'connection', causeOf(error));
    }
  }

  #missingTerm({ terms }: ReplyItem): string | undefined {
    return Object.keys(this.#weights ?? {}).find((name) => !Object.hasOwn(terms, name));
  }

  /**
   * The servers' outcome, or `sum_k w_k * normalised_k` of the weighted terms. Parts keep the servers' names. The reply contains every
   * weighted term.
   */
  #outcomeOf(reply: ReplyItem): Outcome {
    if (this.#weights === null) return fromWire(reply.outcome);
    return weightedSum(
      Object.entries(this.#weights).map(([name, weight]) => ({ name, weight, outcome: fromWire(reply.terms[name]) })),
    );
  }

  /** Identifies the servers' settings. Raises the errors of `ready`. */
  async #check(
    { maxWaitMs, judge }: { readonly maxWaitMs: number; readonly judge: boolean },
    signal?: AbortSignal,
  ): Promise<string> {
    const { urls } = this.#remote;
    const check = async () => {
      const checks = await Promise.all(urls.map((url) => this.#checkServer(url, judge, signal)));
      const ready = checks.filter((one) => 'health' in one);
      if (ready.length > 0) return { ready };
      const failed = checks.filter((one) => 'found' in one);
      const error = new EndpointError(`no reward server is ready: ${failed.map(({ found }) => found).join('; ')}`, {
        where: urls.join(', '),
        next: 'Start one with `editrl serve rewards`, check its address and token, then run the same command again.',
      });
      return { error, final: failed.every(({ final }) => final) };
    };
    const ready = await untilReady(check, { clock: this.#clock, maxWaitMs, signal, pauseMs: CHECK_INTERVAL_MS });
    const [first, ...others] = ready;
    const other = others.find(({ health }) => health.reward !== first.health.reward);
    if (other !== undefined) {
      throw new ConfigError(
        `two servers of one pool have different settings: ${describe(first.health)} and ${describe(other.health)}`,
        { where: `${first.url}, ${other.url}`, next: 'Start all servers of a pool with the same settings.' },
      );
    }
    const offered = (first.health.terms ?? []).map(({ name }) => name);
    const missing = Object.keys(this.#weights ?? {}).find((name) => !offered.includes(name));
    if (missing !== undefined) {
      throw new ConfigError(`the reward servers have no term '${missing}'; available: ${offered.join(', ')}`, {
        where: first.url,
        next: 'Weight only available terms, or start the servers with this one.',
      });
    }
    return first.health.reward ?? '';
  }

  /** Never rejects. */
  async #checkServer(url: string, judge: boolean, parent?: AbortSignal): Promise<ServerCheck> {
    const deadline = new Deadline(this.#clock, CHECK_TIMEOUT_MS, parent);
    const no = (found: string, final: boolean): ServerCheck => ({ found: `${url}: ${found}`, final });
    try {
      const { signal } = deadline;
      const response = await this.#http.fetch(`${url}/health${judge ? '?judge' : ''}`, {
        headers: this.#headers,
        signal,
      });
      const text = await response.text();
      const parsed = healthSchema.safeParse(parseJson(text));
      if (!parsed.success) return no(`HTTP ${response.status}, not a reward server: ${excerpt(text)}`, response.ok);
      const health = parsed.data;
      if (health.status === 'judge_away') return no(`its judge does not answer: ${health.detail ?? ''}`, false);
      if (!response.ok) return no(`status ${health.status}`, false);
      return health.reward === undefined ? no('token rejected', true) : { url, health };
    } catch (error) {
      return no(deadline.over ? 'no answer in time' : causeOf(error), false);
    } finally {
      deadline.dispose();
    }
  }
}

const STATUSES: StatusTable<readonly [ReplyMeaning, UnscoredReason]> = {
  // The request is at fault, not the server.
  400: ['refused', 'bad_request'],
  413: ['refused', 'bad_request'],
  415: ['refused', 'bad_request'],
  422: ['refused', 'bad_request'],
  429: ['busy', 'rate_limited'],
  500: ['doubtful', 'server_error'],
  '5xx': ['failed', 'server_error'],
  // A wrong token or address is as bad as a server that is down. Another server may have the right one.
  rest: ['failed', 'bad_request'],
};

const late: Answer = { kind: 'none', reason: 'timeout', detail: 'no server answered in time' };
const allFailed: Answer = {
  kind: 'none',
  reason: 'connection',
  detail: 'not asked: all reward servers failed just now',
};
const cancelled = unscored('aborted', 'canceled');

function unscored(reason: UnscoredReason, detail: string): Outcome {
  return { kind: 'unscored', reason, detail, parts: {} };
}

/** A function call, because the compiler would assume that a signal's state cannot change. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

/** The base URL without a trailing slash, `/v1` and `/score`. */
function serverUrl(text: string): string {
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : null;
  if (url === null || !['http:', 'https:'].includes(url.protocol) || url.username !== '' || url.password !== '') {
    throw new ConfigError(
      `'${text}' is not the address of a reward server; allowed: http:// or https:// URLs without a password`,
      { next: 'Write it like http://127.0.0.1:4876. A token goes into an environment variable.' },
    );
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '').replace(/(\/v1)?\/score$/, '')}`;
}

/** The status in an error that ended a stream. Null for another line. */
function statusOf(line: unknown): number | null {
  const code = (line as { readonly error?: { readonly code?: unknown } } | null | undefined)?.error?.code;
  return typeof code === 'number' ? code : null;
}

function errorIn(text: string): string {
  const body = parseJson(text) as { readonly error?: { readonly message?: unknown } } | null | undefined;
  const message = typeof body === 'object' ? body?.error?.message : undefined;
  return excerpt(typeof message === 'string' ? message : text);
}

function describe({ terms = [], reward = '' }: HealthReply): string {
  return `${weightedNames(terms)} (${reward.slice(0, 12)})`;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

async function bodyOf(item: JudgeItem): Promise<string> {
  const { key, instruction, answer, expected, finished } = item;
  const [source, image, truth, mask] = await Promise.all(imagesOf(item).map(base64Png));
  const request: RequestItem = {
    key,
    instruction,
    image,
    source,
    truth,
    ...(mask === null ? {} : { mask }),
    ...(answer === undefined ? {} : { answer }),
    ...(expected === undefined ? {} : { expected }),
    finished,
  };
  return `${JSON.stringify(request)}\n`;
}

function imagesOf({ source, edited, truth, mask }: JudgeItem): readonly (RgbImage | null)[] {
  return [source, edited, truth, mask ?? null];
}

async function base64Png(image: RgbImage | null): Promise<string | null> {
  return image === null ? null : Buffer.from(await pngToSend(image)).toString('base64');
}

/** SHA-256 of everything that a server receives about an item, except its key. */
function hashItem(item: JudgeItem): string {
  const { instruction, answer = null, expected = null, finished } = item;
  const ids = imagesOf(item).map((image) => (image === null ? null : imageId(image)));
  return sha256(JSON.stringify({ instruction, answer, expected, finished, ids }));
}

function keyOf(item: JudgeItem): string {
  return `${item.key}/${REPLY_QUERY}`;
}

/**
 * The stored reply for an item, or the outcome of an item that got no reply. Null if nothing is stored, or if the stored reply has no score
 * and shall be asked for again.
 */
function replay(item: JudgeItem, store: Pick<JudgementStore, 'find'>, askAgain: boolean): ReplyItem | Outcome | null {
  const stored = store.find(keyOf(item), hashItem(item));
  if (stored === undefined || (stored.problem !== null && askAgain)) return null;
  const reply = recordedReply(stored);
  if (reply !== null || stored.problem === null) return reply;
  return unscored(stored.problem, stored.detail ?? 'as recorded: no reward server answered');
}

/** Null if the record contains no reply. */
function recordedReply({ text }: Judgement): ReplyItem | null {
  const reply = replyItemSchema.safeParse(parseJson(text));
  return reply.success ? reply.data : null;
}

/** The record of an item's last exchange: the server's reply as text, and its settings as model. */
function toJudgement(item: JudgeItem, found: Answer, counts: Pick<Judgement, 'attempts' | 'latencyMs'>): Judgement {
  const base = { key: keyOf(item), requestHash: hashItem(item), ...counts };
  if (found.kind === 'none') {
    return { ...base, model: '', text: '', problem: found.reason, detail: found.detail, scores: [] };
  }
  const { outcome } = found.item;
  const made = { ...base, model: found.reward, text: JSON.stringify(found.item) };
  if (outcome.kind !== 'unscored') return { ...made, problem: null, scores: [outcome.value] };
  return { ...made, problem: outcome.reason, detail: outcome.detail, scores: [] };
}
