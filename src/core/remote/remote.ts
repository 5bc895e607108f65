/**
 * Asks another machine: one server, or several equal ones. The caller specifies how to request one server, and what each reply means
 * (`MEANINGS`). Choosing, retrying and reporting work the same for all.
 */
import { type Clock, Deadline, sleep, systemClock } from '../clock.js';
import type { EndpointError } from '../errors.js';
import { causeOf, isNotThere } from '../http/request.js';
import { Member, Members, type RequestEnd } from './member.js';
import { backoffMs, FULL_JITTER, type Backoff } from '../retry.js';

/** Default pause before asking an absent or busy server again. */
const AGAIN_MS = 1000;

/** The meaning of a reply for its request and for its server. */
const MEANINGS = {
  /** It is the answer. */
  answered: { next: 'done', ending: { load: 'carried', health: 'works' } },
  /** It is acceptable if no other server has a better one. */
  second_best: { next: 'second_best', ending: { load: 'carried', health: 'works' } },
  /** The server rejects this request, as every other server would. */
  refused: { next: 'done', ending: { load: 'nothing', health: 'works' } },
  /** The server rejects all such requests: the settings or the key are wrong. */
  wrong: { next: 'done', ending: { load: 'nothing', health: 'nothing' } },
  /** The server is down or not ready. This is not a failure. */
  away: { next: 'busy', ending: { load: 'nothing', health: 'nothing' }, retryAfterMs: AGAIN_MS },
  /** The server is busy. This is not a failure. */
  busy: { next: 'busy', ending: { load: 'overloaded', health: 'works' }, retryAfterMs: AGAIN_MS },
  /** The server is busy. The request has failed, but the server has not. */
  turned_away: { next: 'elsewhere', ending: { load: 'overloaded', health: 'works' } },
  /** The server failed. */
  failed: { next: 'elsewhere', ending: { load: 'nothing', health: 'fails' } },
  /** The server failed because of its load. */
  overwhelmed: { next: 'elsewhere', ending: { load: 'overloaded', health: 'fails' } },
  /** The server failed, perhaps because of the request. */
  doubtful: { next: 'elsewhere', ending: { load: 'nothing', health: 'unsure' } },
  /** The server rejected the key. Some servers reject a text this way. */
  key_rejected: { next: 'elsewhere', ending: { load: 'nothing', health: 'unsure' } },
  /** No reply in time. Another server would take as long. */
  late: { next: 'done', ending: { load: 'overloaded', health: 'unsure' } },
  /** The caller disconnected, perhaps because the server hangs. */
  abandoned: { next: 'done', ending: { load: 'nothing', health: 'unsure' } },
} as const satisfies Readonly<Record<string, Omit<AttemptResult<never>, 'reply'>>>;
export type ReplyMeaning = keyof typeof MEANINGS;

/** @param retryAfterMs the pause that the server asks for, if any. */
export function attemptResult<R>(meaning: ReplyMeaning, reply: R, retryAfterMs?: number | null): AttemptResult<R> {
  return {
    ...MEANINGS[meaning],
    reply,
    ...((retryAfterMs ?? null) === null ? {} : { retryAfterMs: retryAfterMs as number }),
  };
}

export interface RemoteOptions<M extends Member, Request, Reply> {
  readonly members: readonly M[];
  readonly policy: AskPolicy;
  /** Makes one request to one server within its own time limit. Never rejects. */
  readonly attempt: (member: M, request: Request, within: Deadline) => Promise<AttemptResult<Reply>>;
  /** Servers to ask before the others. */
  readonly prefers?: (member: M) => boolean;
  readonly clock?: Clock | undefined;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: (() => number) | undefined;
}

/** The result of a request. */
export interface AskResult<Reply> {
  /** The last reply. Null if no server could be asked. */
  readonly reply: Reply | null;
  readonly attempts: number;
  /** Whether no server was asked because all are skipped after failures. */
  readonly skipped: boolean;
}

export class Remote<M extends Member, Request, Reply> {
  readonly #members: Members<M>;
  readonly #options: RemoteOptions<M, Request, Reply>;
  readonly clock: Clock;

  constructor(options: RemoteOptions<M, Request, Reply>) {
    this.#options = options;
    this.#members = new Members(options.members);
    this.clock = options.clock ?? systemClock;
  }

  get members(): readonly M[] {
    return this.#members.all;
  }

  /** Base URLs. */
  get urls(): readonly string[] {
    return this.members.map(({ url }) => url);
  }

  /** Asks until a reply is final, the attempts are used up, or the time is over. */
  async ask(request: Request, within: Deadline, policy?: Partial<AskPolicy>): Promise<AskResult<Reply>> {
    const { reply, attempts } = await askMembers(this.#asking(request, within, policy));
    const skipped = reply === null && !within.over && this.members.every(({ breaker }) => breaker.blocks);
    return { reply, attempts, skipped };
  }

  /** One request to the least loaded server, preferably one that is not skipped. */
  async once(request: Request, within: Deadline): Promise<Reply | null> {
    const member = this.#members.choose(({ breaker }) => !breaker.blocks) ?? this.#members.choose(() => true);
    return member === null ? null : (await askOnce(member, this.#asking(request, within))).reply;
  }

  #asking(request: Request, within: Deadline, policy: Partial<AskPolicy> = {}): AskOptions<M, Reply> {
    const { random = Math.random, attempt, prefers, policy: usual } = this.#options;
    return {
      members: this.#members,
      policy: { ...usual, ...policy },
      clock: this.clock,
      random,
      within,
      ask: (member, own) => attempt(member, request, own),
      ...(prefers === undefined ? {} : { prefers }),
    };
  }
}

/** The outcome of a request. `none`: no answer now, perhaps later. `wrong`: the settings or the key are wrong, and asking again does not help. */
export type ReplyOutcome<A> =
  | { readonly kind: 'answered'; readonly answer: A }
  | { readonly kind: 'none'; readonly found: string }
  | { readonly kind: 'wrong'; readonly found: string; readonly next: string };

export function gotAnswer<A>(answer: A, meaning: 'answered' | 'refused' = 'answered'): AttemptResult<ReplyOutcome<A>> {
  return attemptResult(meaning, { kind: 'answered', answer });
}

export function noAnswer(
  meaning: 'away' | 'busy' | 'failed',
  found: string,
  retryAfterMs?: number | null,
): AttemptResult<ReplyOutcome<never>> {
  return attemptResult(meaning, { kind: 'none', found }, retryAfterMs);
}

export function misconfigured(found: string, next: string): AttemptResult<ReplyOutcome<never>> {
  return attemptResult('wrong', { kind: 'wrong', found, next });
}

/** The meaning of a request without a reply. A canceled request has no meaningful duration. */
export function requestFailed(
  error: unknown,
  attempt: Deadline,
  timeoutMs: number,
): AttemptResult<ReplyOutcome<never>> {
  if (attempt.over) {
    const calledOff = attempt.remainingMs() > 0;
    return noAnswer('failed', calledOff ? 'canceled' : `no answer within ${timeoutMs / 1000} s`);
  }
  return noAnswer(isNotThere(error) ? 'away' : 'failed', causeOf(error));
}

/** Settings for reaching a server that a run needs. */
export interface ServerOptions extends OutageListener {
  /** `http://HOST:PORT`. */
  readonly url: string;
  /** Absent if the server needs none. */
  readonly apiKey?: string | undefined;
  /** Requests in flight. */
  readonly concurrency: number;
  /** Time limit of one request. */
  readonly timeoutMs: number;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** After this many failures in a row, a server is skipped for this long if there are others. */
const FAILURES = 8;
const PAUSE_MS = 5000;

/** A server that the run waits for. */
export class AwaitedMember extends Member {
  /** @param cap requests in flight. `alone`: there is no other server, so it is never skipped. */
  constructor(url: string, clock: Clock, { cap, alone }: { readonly cap: number; readonly alone: boolean }) {
    const failures = alone ? Infinity : Math.max(FAILURES, cap);
    super(url, clock, { cap, failures, doubts: failures, pauseMs: PAUSE_MS });
  }
}

export interface AwaitedOptions<M extends Member, Request, A>
  extends Omit<RemoteOptions<M, Request, ReplyOutcome<A>>, 'policy'>, OutageListener {
  readonly policy: Pick<AskPolicy, 'maxAttempts' | 'attemptTimeoutMs' | 'retryAfterCapMs'>;
  /** The error of a request without an answer. `next` has better advice than running the command again, if there is any. */
  readonly error: (
    found: string,
    where: { readonly url: string; readonly next?: string },
    item: Request,
  ) => EndpointError;
  /** Describes a server that is down. By default its address and what was found. */
  readonly away?: (found: string, url: string) => string;
}

/** Advice for a server that a run needs. */
export const RUN_AGAIN =
  'Check that it runs and what its log says, then run the same command again. The run resumes from its last checkpoint.';

/** With the server's address. */
type FoundAt<A> = ReplyOutcome<A> & { readonly url: string };

interface Question<Request> {
  readonly request: Request;
  readonly within: Deadline;
}

/**
 * A remote that a run depends on. While its servers are down, it waits and reports, until the caller's time is over. Failures are retried a
 * limited number of times. Rejected requests are not repeated.
 */
export class AwaitedRemote<M extends Member, Request, A> {
  readonly #options: AwaitedOptions<M, Request, A>;
  readonly #remote: Remote<M, Question<Request>, FoundAt<A>>;
  readonly #outage: Outage;

  constructor(options: AwaitedOptions<M, Request, A>) {
    this.#options = options;
    const policy = { ...options.policy, backoffBaseMs: 250, backoffCapMs: 8000 };
    this.#remote = new Remote({ ...options, policy, attempt: (...args) => this.#attempt(...args) });
    this.#outage = new Outage(this.#remote.clock, options);
  }

  get members(): readonly M[] {
    return this.#remote.members;
  }

  /** Base URLs. */
  get urls(): readonly string[] {
    return this.#remote.urls;
  }

  /** Raises EndpointError if no server answers within the time or the attempts, or if the settings are wrong. */
  async answer(request: Request, within: Deadline, policy?: Partial<AskPolicy>): Promise<A> {
    while (!within.over) {
      const { reply } = await this.#remote.ask({ request, within }, within, policy);
      if (reply?.kind === 'answered') return reply.answer;
      if (reply !== null) throw this.error(request, reply.found, reply);
      // All are skipped.
      await sleep(this.#remote.clock, AGAIN_MS, within.signal);
    }
    throw this.error(request, 'no time was left to ask');
  }

  /** The result of one request now. */
  async look(request: Request, within: Deadline): Promise<ReplyOutcome<A> | null> {
    return this.#remote.once({ request, within }, within);
  }

  error(item: Request, found: string, at: { readonly url?: string; readonly next?: string } = {}): EndpointError {
    return this.#options.error(found, { url: this.urls.join(', '), ...at }, item);
  }

  async #attempt(member: M, question: Question<Request>, own: Deadline): Promise<AttemptResult<FoundAt<A>>> {
    const found = await this.#options.attempt(member, question.request, own);
    if (found.next === 'done') this.#outage.up();
    else if (found.next === 'busy' && found.reply.kind === 'none') {
      const { away = (words, url) => `${url}: ${words}` } = this.#options;
      this.#outage.down(away(found.reply.found, member.url));
    }
    return { ...found, reply: { ...found.reply, url: member.url } };
  }
}

/** Pauses with full jitter follow after all servers were tried. */
export interface AskPolicy extends Backoff {
  /** Failed requests per question. */
  readonly maxAttempts: number;
  readonly attemptTimeoutMs: number;
  /** A longer `Retry-After` is reduced to this. */
  readonly retryAfterCapMs: number;
}

/**
 * How a request continues after a reply. `done`: final. `elsewhere`: another server may do better, or this one later. `busy`: the same, but
 * not a failure. `second_best`: taken if no other server, each asked once, has a better one.
 */
export interface AttemptResult<R> {
  readonly reply: R;
  readonly next: 'done' | 'elsewhere' | 'busy' | 'second_best';
  readonly ending: RequestEnd;
  /** The pause that the server asks for. */
  readonly retryAfterMs?: number;
}

export interface AskOptions<M extends Member, R> {
  readonly members: Members<M>;
  readonly policy: AskPolicy;
  readonly clock: Clock;
  /** Uniform in [0, 1), for jitter only: it must not draw from a stream that training uses. */
  readonly random: () => number;
  /** Over all requests of the question. */
  readonly within: Deadline;
  /** One request. */
  readonly ask: (member: M, within: Deadline) => Promise<AttemptResult<R>>;
  /** Servers to ask before the others. */
  readonly prefers?: (member: M) => boolean;
}

/**
 * Asks each server once, then waits and starts over, until a reply is acceptable, the attempts are used up, or the time is over. Servers
 * that are skipped are not asked, unless a question in progress has no others left, since all may have failed at one moment. `reply` is the
 * last one that the end of the time did not cut short. Null if no server could be asked.
 */
export async function askMembers<M extends Member, R>(
  asking: AskOptions<M, R>,
): Promise<{ readonly reply: R | null; readonly attempts: number }> {
  const { members, policy, clock, random, within, prefers = () => true } = asking;
  const tried = new Set<M>();
  /** Members that have given their best reply. */
  const spent = new Set<M>();
  let secondBest: R | null = null;
  let last: R | null = null;
  let attempts = 0;
  let failures = 0;
  let rounds = 0;
  while (!within.over) {
    const candidates = open();
    if (candidates.length === 0) break;
    const willDo = (member: M): boolean => candidates.includes(member) && !tried.has(member) && member.waitMs === 0;
    const member = members.choose((each) => willDo(each) && prefers(each)) ?? members.choose(willDo);
    if (member === null) {
      // Jitter is added, so that callers with the same delay do not all return at the same moment.
      const waitMs = Math.min(...candidates.map((each) => each.waitMs)) + jitterMs();
      if (waitMs >= within.remainingMs()) break;
      if (tried.size > 0) rounds++;
      tried.clear();
      await sleep(clock, waitMs, within.signal);
      continue;
    }
    attempts++;
    const { reply, next, retryAfterMs } = await askOnce(member, asking);
    if (next === 'done') return { reply, attempts };
    // A request that ran out of time explains less than the request before it.
    if (last === null || !within.over) last = reply;
    if (retryAfterMs !== undefined) member.busyFor(Math.min(policy.retryAfterCapMs, retryAfterMs));
    tried.add(member);
    if (next !== 'busy') spent.add(member);
    if (next === 'second_best') secondBest = reply;
    if (next === 'elsewhere' && ++failures >= policy.maxAttempts) break;
  }
  return { reply: secondBest ?? last, attempts };

  /** Servers that this question may still ask, now or later. */
  function open(): readonly M[] {
    const available = members.all.filter(({ breaker }) => !breaker.blocks);
    if (secondBest !== null) return available.filter((member) => !spent.has(member));
    return available.length === 0 && attempts > 0 ? members.all : available;
  }

  function jitterMs(): number {
    return backoffMs(policy, rounds, FULL_JITTER, random);
  }
}

/** One request within its own time limit. Reports its end to the member. */
export async function askOnce<M extends Member, R>(
  member: M,
  { ask, clock, policy, within }: Pick<AskOptions<M, R>, 'ask' | 'clock' | 'policy' | 'within'>,
): Promise<AttemptResult<R>> {
  const deadline = new Deadline(clock, policy.attemptTimeoutMs, within);
  const end = member.start();
  let ending: RequestEnd = { load: 'nothing', health: 'nothing' };
  try {
    const tried = await ask(member, deadline);
    // A request that the caller canceled does not show the health of the server. A question that ran out of time does.
    const calledOff = tried.next !== 'done' && within.over && within.remainingMs() > 0;
    if (!calledOff) ending = { ...tried.ending, request: within };
    return tried;
  } finally {
    end(ending);
    deadline.dispose();
  }
}

const REPORT_INTERVAL_MS = 30_000;
/** Shorter outages are not reported. */
const REPORT_AFTER_MS = 3000;

/** Informed while a required server is down. */
export interface OutageListener {
  /** Called at intervals while it is down, with what was found and for how long. */
  readonly onWaiting?: ((found: string, waitedS: number) => void) | undefined;
  /** Called when it answers again. */
  readonly onBack?: (() => void) | undefined;
}

/** How long the server has been down, reported from time to time. */
export class Outage {
  #since: number | null = null;
  #said: number | null = null;

  constructor(
    private readonly clock: Clock,
    private readonly listener: OutageListener,
  ) {}

  /** The server did not answer. */
  down(found: string): void {
    const now = this.clock.now();
    const since = (this.#since ??= now);
    if (now - since < REPORT_AFTER_MS || (this.#said !== null && now - this.#said < REPORT_INTERVAL_MS)) return;
    this.#said = now;
    this.listener.onWaiting?.(found, Math.round((now - since) / 1000));
  }

  /** The server answered. */
  up(): void {
    const wasReported = this.#said !== null;
    this.#since = null;
    this.#said = null;
    if (wasReported) this.listener.onBack?.();
  }
}

/** The result of checking servers. `final`: waiting will not help. */
export type ReadinessResult<R> = { readonly ready: R } | { readonly error: EndpointError; readonly final: boolean };

export interface UntilReadyOptions {
  readonly clock: Clock;
  /** 0 checks once. */
  readonly maxWaitMs: number;
  readonly signal?: AbortSignal | undefined;
  /** The pause between checks. */
  readonly pauseMs: number;
  /** Number of consecutive final checks before they count, and the pause between them. Default: one check. */
  readonly finalChecks?: { readonly count: number; readonly pauseMs: number };
  /** Called after every check that found the servers not ready. */
  readonly onWaiting?: ((found: string, waitedS: number) => void) | undefined;
}

/** Checks until the servers are ready. Raises the last error if they are not ready in time, will not become ready, or the signal aborts. */
export async function untilReady<R>(
  look: () => Promise<ReadinessResult<R>>,
  { clock, maxWaitMs, signal, pauseMs, finalChecks = { count: 1, pauseMs }, onWaiting }: UntilReadyOptions,
): Promise<R> {
  const started = clock.now();
  for (let finals = 0; ;) {
    const found = await look();
    if ('ready' in found) return found.ready;
    finals = found.final ? finals + 1 : 0;
    const waitedMs = clock.now() - started;
    if (signal?.aborted === true || finals === finalChecks.count || waitedMs >= maxWaitMs) throw found.error;
    onWaiting?.(found.error.message, Math.round(waitedMs / 1000));
    await sleep(clock, Math.min(found.final ? finalChecks.pauseMs : pauseMs, maxWaitMs - waitedMs), signal);
  }
}
