/**
 * Asks another machine: one server or several equal ones behind one name. A specification says how one request is made of one server, and what each
 * reply means (`MEANINGS`). Which server is asked, when it is asked again, and what is reported while it is away is the same for all.
 */
import { type Clock, Deadline, sleep, systemClock } from '../clock.js';
import type { EndpointError } from '../errors.js';
import { causeOf, isNotThere } from '../http/request.js';
import { Member, Members, type RequestEnd } from './member.js';
import { backoffMs, FULL_JITTER, type Backoff } from '../retry.js';

/** A server that is away, or busy without saying for how long, is asked again after this. */
const AGAIN_MS = 1000;

/** What a reply means for its request and for its server. */
const MEANINGS = {
  /** It is what was asked for. */
  answered: { next: 'done', ending: { load: 'carried', health: 'works' } },
  /** It will do if no other server gives a better one. */
  second_best: { next: 'second_best', ending: { load: 'carried', health: 'works' } },
  /** The server refuses this request, as every other server would. */
  refused: { next: 'done', ending: { load: 'nothing', health: 'works' } },
  /** It refuses every request like it: settings or the key are wrong. */
  wrong: { next: 'done', ending: { load: 'nothing', health: 'nothing' } },
  /** The server is not there, or not ready. That counts as no failure. */
  away: { next: 'busy', ending: { load: 'nothing', health: 'nothing' }, retryAfterMs: AGAIN_MS },
  /** It has too much to do. That counts as no failure. */
  busy: { next: 'busy', ending: { load: 'overloaded', health: 'works' }, retryAfterMs: AGAIN_MS },
  /** It has too much to do, which counts as a failure of the request, but not of the server. */
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

/** @param retryAfterMs how long the server asks to be left alone; null or undefined where it does not say. */
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
  /** Makes one request to one server within its own time. Never rejects, whatever the server does. */
  readonly attempt: (member: M, request: Request, within: Deadline) => Promise<AttemptResult<Reply>>;
  /** Servers that are asked before the others. */
  readonly prefers?: (member: M) => boolean;
  readonly clock?: Clock | undefined;
  /** Uniform in [0, 1), for back-off jitter only. */
  readonly random?: (() => number) | undefined;
}

/** The result of a request. */
export interface AskResult<Reply> {
  /** The last reply; null where no server could be asked. */
  readonly reply: Reply | null;
  readonly attempts: number;
  /** Whether no server was asked because all are being left alone after failures. */
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

  /** Asks until a reply ends it, the attempts are used up, or the time would be over. */
  async ask(request: Request, within: Deadline, policy?: Partial<AskPolicy>): Promise<AskResult<Reply>> {
    const { reply, attempts } = await askMembers(this.#asking(request, within, policy));
    const skipped = reply === null && !within.over && this.members.every(({ breaker }) => breaker.blocks);
    return { reply, attempts, skipped };
  }

  /** One request to the least loaded server, preferably one that is not being skipped. */
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

/** The outcome of a request. `none`: no answer now, perhaps later; `wrong`: the settings or the key are wrong, and asking again does not help. */
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

/** What a request without a reply means. A cancelled request says nothing about how long it took. */
export function requestFailed(
  error: unknown,
  attempt: Deadline,
  timeoutMs: number,
): AttemptResult<ReplyOutcome<never>> {
  if (attempt.over) {
    const calledOff = attempt.remainingMs() > 0;
    return noAnswer('failed', calledOff ? 'it was called off' : `no answer within ${timeoutMs / 1000} s`);
  }
  return noAnswer(isNotThere(error) ? 'away' : 'failed', causeOf(error));
}

/** How a client reaches one server that a run cannot do without. */
export interface ServerOptions extends OutageListener {
  /** `http://HOST:PORT`. */
  readonly url: string;
  /** Absent if it needs none. */
  readonly apiKey?: string | undefined;
  /** Requests under way at once. */
  readonly concurrency: number;
  /** The time of one request. */
  readonly timeoutMs: number;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for back-off jitter only. */
  readonly random?: () => number;
}

/** Servers that fail this often in a row are skipped for this long, if there are others. */
const FAILURES = 8;
const PAUSE_MS = 5000;

/** A server that is waited for. */
export class AwaitedMember extends Member {
  /** @param cap requests that may be under way; `alone`: there is no other server to leave it alone for. */
  constructor(url: string, clock: Clock, { cap, alone }: { readonly cap: number; readonly alone: boolean }) {
    const failures = alone ? Infinity : Math.max(FAILURES, cap);
    super(url, clock, { cap, failures, doubts: failures, pauseMs: PAUSE_MS });
  }
}

export interface AwaitedOptions<M extends Member, Request, A>
  extends Omit<RemoteOptions<M, Request, ReplyOutcome<A>>, 'policy'>, OutageListener {
  readonly policy: Pick<AskPolicy, 'maxAttempts' | 'attemptTimeoutMs' | 'retryAfterCapMs'>;
  /** The error of a request without an answer; `next` gives better advice than running the command again, if there is any. */
  readonly error: (
    found: string,
    where: { readonly url: string; readonly next?: string },
    asked: Request,
  ) => EndpointError;
  /** The report on a server that is away; by default its address and what was found. */
  readonly away?: (found: string, url: string) => string;
}

/** What to do about a server that a run cannot do without. */
export const RUN_AGAIN =
  'Check that it runs and what its log says, then run the same command again: the run goes on from its last checkpoint.';

/** With the server that it was found at. */
type FoundAt<A> = ReplyOutcome<A> & { readonly url: string };

interface Question<Request> {
  readonly request: Request;
  readonly within: Deadline;
}

/**
 * A remote that a run cannot do without: while its servers are away it waits for them, and reports that, until the caller's time is over; failures
 * are retried a limited number of times; a refused request is not repeated.
 */
export class AwaitedRemote<M extends Member, Request, A> {
  readonly #options: AwaitedOptions<M, Request, A>;
  readonly #remote: Remote<M, Question<Request>, FoundAt<A>>;
  readonly #outage: Outage;

  constructor(options: AwaitedOptions<M, Request, A>) {
    this.#options = options;
    const policy = { ...options.policy, backoffBaseMs: 250, backoffCapMs: 8000 };
    this.#remote = new Remote({ ...options, policy, attempt: (...asked) => this.#attempt(...asked) });
    this.#outage = new Outage(this.#remote.clock, options);
  }

  get members(): readonly M[] {
    return this.#remote.members;
  }

  /** Base URLs. */
  get urls(): readonly string[] {
    return this.#remote.urls;
  }

  /** Raises EndpointError where no server gives an answer within the time or the attempts, or says that settings are wrong. */
  async answer(request: Request, within: Deadline, policy?: Partial<AskPolicy>): Promise<A> {
    while (!within.over) {
      const { reply } = await this.#remote.ask({ request, within }, within, policy);
      if (reply?.kind === 'answered') return reply.answer;
      if (reply !== null) throw this.error(request, reply.found, reply);
      // All are being left alone.
      await sleep(this.#remote.clock, AGAIN_MS, within.signal);
    }
    throw this.error(request, 'no time was left to ask');
  }

  /** The result of one request now. */
  async look(request: Request, within: Deadline): Promise<ReplyOutcome<A> | null> {
    return this.#remote.once({ request, within }, within);
  }

  error(asked: Request, found: string, at: { readonly url?: string; readonly next?: string } = {}): EndpointError {
    return this.#options.error(found, { url: this.urls.join(', '), ...at }, asked);
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

/** Pauses, with full jitter, come after all servers were tried. */
export interface AskPolicy extends Backoff {
  /** Requests for one question that may fail. */
  readonly maxAttempts: number;
  readonly attemptTimeoutMs: number;
  /** A longer `Retry-After` is cut to this. */
  readonly retryAfterCapMs: number;
}

/**
 * What a reply means for its question: it is `done`; another server may do better (`elsewhere`), or this one in a while; `busy` is the
 * same, but no failure; `second_best` is taken where no other server, each asked once, gives a better one.
 */
export interface AttemptResult<R> {
  readonly reply: R;
  readonly next: 'done' | 'elsewhere' | 'busy' | 'second_best';
  readonly ending: RequestEnd;
  /** How long the server asks to be left alone. */
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
  /** Members to ask before the others. */
  readonly prefers?: (member: M) => boolean;
}

/**
 * Asks one member after another, each once, then waits and starts over, until there is an acceptable reply, the attempts are used up, or the time
 * would be over. Members that are skipped are not asked, unless a question that is under way has no others left: all may have failed at one moment.
 * `reply` is the last one that the end of the time did not cut short; null if nobody could be asked.
 */
export async function askMembers<M extends Member, R>(
  asking: AskOptions<M, R>,
): Promise<{ readonly reply: R | null; readonly attempts: number }> {
  const { members, policy, clock, random, within, prefers = () => true } = asking;
  const tried = new Set<M>();
  /** Members that have already given their best reply. */
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
      // Jitter is added, so that callers who got the same delay do not all return at the same moment.
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
    // A request that the end of the time cut short says less than the one before it.
    if (last === null || !within.over) last = reply;
    if (retryAfterMs !== undefined) member.busyFor(Math.min(policy.retryAfterCapMs, retryAfterMs));
    tried.add(member);
    if (next !== 'busy') spent.add(member);
    if (next === 'second_best') secondBest = reply;
    if (next === 'elsewhere' && ++failures >= policy.maxAttempts) break;
  }
  return { reply: secondBest ?? last, attempts };

  /** Whom this question may still ask, now or later. */
  function open(): readonly M[] {
    const available = members.all.filter(({ breaker }) => !breaker.blocks);
    if (secondBest !== null) return available.filter((member) => !spent.has(member));
    return available.length === 0 && attempts > 0 ? members.all : available;
  }

  function jitterMs(): number {
    return backoffMs(policy, rounds, FULL_JITTER, random);
  }
}

/** One request within its own time, whose end is reported to the member. */
export async function askOnce<M extends Member, R>(
  member: M,
  { ask, clock, policy, within }: Pick<AskOptions<M, R>, 'ask' | 'clock' | 'policy' | 'within'>,
): Promise<AttemptResult<R>> {
  const deadline = new Deadline(clock, policy.attemptTimeoutMs, within);
  const end = member.start();
  let ending: RequestEnd = { load: 'nothing', health: 'nothing' };
  try {
    const tried = await ask(member, deadline);
    // A request that the caller cancelled says nothing about the server; a question that ran out of time does.
    const calledOff = tried.next !== 'done' && within.over && within.remainingMs() > 0;
    if (!calledOff) ending = { ...tried.ending, request: within };
    return tried;
  } finally {
    end(ending);
    deadline.dispose();
  }
}

const REPORT_INTERVAL_MS = 30_000;
/** The first word of a wait comes after so long: a pause that is over by then is nobody's concern. */
const REPORT_AFTER_MS = 3000;

/** Informed when the server that everybody waits for is away. */
export interface OutageListener {
  /** Called at intervals while it is away, with what was found and for how long it has been away. */
  readonly onWaiting?: ((found: string, waitedS: number) => void) | undefined;
  /** Called when it answers again after that. */
  readonly onBack?: (() => void) | undefined;
}

/** How long the awaited server has been away, reported from time to time. */
export class Outage {
  #since: number | null = null;
  #said: number | null = null;

  constructor(
    private readonly clock: Clock,
    private readonly listener: OutageListener,
  ) {}

  /** It did not answer. */
  down(found: string): void {
    const now = this.clock.now();
    const since = (this.#since ??= now);
    if (now - since < REPORT_AFTER_MS || (this.#said !== null && now - this.#said < REPORT_INTERVAL_MS)) return;
    this.#said = now;
    this.listener.onWaiting?.(found, Math.round((now - since) / 1000));
  }

  /** It answered. */
  up(): void {
    const told = this.#said !== null;
    this.#since = null;
    this.#said = null;
    if (told) this.listener.onBack?.();
  }
}

/** The result of checking servers. `final`: waiting will not make them ready. */
export type ReadinessResult<R> = { readonly ready: R } | { readonly error: EndpointError; readonly final: boolean };

export interface UntilReadyOptions {
  readonly clock: Clock;
  /** 0 looks once. */
  readonly maxWaitMs: number;
  readonly signal?: AbortSignal | undefined;
  /** The pause after a look. */
  readonly pauseMs: number;
  /** The number of checks in a row that have to be final before they are believed, and the time between them; one check by default. */
  readonly finalChecks?: { readonly count: number; readonly pauseMs: number };
  /** Called after every look that found them not ready, with what was found. */
  readonly onWaiting?: ((found: string, waitedS: number) => void) | undefined;
}

/** Looks until the servers are ready. Raises the error of the last look where they are not in time, will not be, or the signal aborts. */
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
