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
 * Asks one member after another, each once, then waits and begins again, until there is a reply to take, the attempts are used up, or the
 * time would be over. Members that are spared are not asked, unless a question that has begun has no others left: all may have failed at
 * one moment. `reply` is the last one that the end of the time did not cut short; null where nobody could be asked.
 */
export async function askMembers<M extends Member, R>(
  asking: AskOptions<M, R>,
): Promise<{ readonly reply: R | null; readonly attempts: number }> {
  const { members, policy, clock, random, within, prefers = () => true } = asking;
  const tried = new Set<M>();
  /** Members that have already given what they have. */
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
      // Jitter comes on top, so that callers who were told the same moment do not all come back at it.
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

/** One request within its own time, told to the member. */
export async function askOnce<M extends Member, R>(
  member: M,
  { ask, clock, policy, within }: Pick<AskOptions<M, R>, 'ask' | 'clock' | 'policy' | 'within'>,
): Promise<AttemptResult<R>> {
  const deadline = new Deadline(clock, policy.attemptTimeoutMs, within);
  const end = member.start();
  let ending: RequestEnd = { load: 'nothing', health: 'nothing' };
  try {
    const tried = await ask(member, deadline);
    // What the caller called off says nothing about the server; a question's time that ran out does.
    const calledOff = tried.next !== 'done' && within.over && within.remainingMs() > 0;
    if (!calledOff) ending = { ...tried.ending, request: within };
    return tried;
  } finally {
    end(ending);
    deadline.dispose();
  }
}
