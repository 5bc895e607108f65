/** The retry policy of everyone who asks one of several equal servers. */
import { sleep, type Clock } from '../core/clock.js';
import { Deadline } from '../core/deadline.js';
import { backoffMs, FULL_JITTER, type Backoff } from '../core/retry.js';
import type { RequestEnd, Member, Members } from './member.js';

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
 * would be over. Members that are spared are not asked, unless a question that is under way has no others left: all may have failed at one moment.
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
    const unspared = members.all.filter(({ breaker }) => !breaker.blocks);
    if (secondBest !== null) return unspared.filter((member) => !spent.has(member));
    return unspared.length === 0 && attempts > 0 ? members.all : unspared;
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
