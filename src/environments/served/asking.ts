/**
 * Asking one or several equal servers for one picture after another. A server that is away is asked again until the caller's time is over; what
 * goes wrong in a reply is asked for again so many times; what a server refuses of a picture is not.
 */
import { Absence, type AbsenceListener } from '../../balance/absence.js';
import { askMembers, type Asking, type AskPolicy, type Tried } from '../../balance/ask.js';
import { Member, Members } from '../../balance/member.js';
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import type { Deadline } from '../../core/deadline.js';
import { EndpointError } from '../../core/errors.js';
import type { Found } from './found.js';
import type { Answered } from './picture.js';

/** A server that is away is looked at again after so long. */
const AGAIN_MS = 1000;
/** Servers that fail so often in a row are left alone for a while, where there are others. */
const FAILURES = 8;
const PAUSE_MS = 5000;

/** One server that makes pictures. */
export class PictureMember extends Member {
  /** @param cap requests that may be under way; `alone`: there is no other one to spare it for. */
  constructor(url: string, clock: Clock, { cap, alone }: { readonly cap: number; readonly alone: boolean }) {
    const failures = alone ? Infinity : Math.max(FAILURES, cap);
    super(url, clock, { cap, failures, doubts: failures, pauseMs: PAUSE_MS });
  }
}

export interface PictureAskingOptions<M extends PictureMember, Asked> extends AbsenceListener {
  /** What messages call the server. */
  readonly name: string;
  readonly members: readonly M[];
  readonly timeoutS: number;
  readonly clock?: Clock | undefined;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: (() => number) | undefined;
  /** Asks once, within its own time. */
  readonly attempt: (member: M, asked: Asked, within: Deadline) => Promise<Tried<Found>>;
}

/** With the server that it was found at. */
type FoundAt = Found & { readonly url: string };

export class PictureAsking<M extends PictureMember, Asked> {
  readonly #members: Members<M>;
  readonly #clock: Clock;
  readonly #absence: Absence;

  constructor(private readonly options: PictureAskingOptions<M, Asked>) {
    this.#clock = options.clock ?? systemClock;
    this.#absence = new Absence(this.#clock, options);
    this.#members = new Members(options.members, 'least_loaded');
  }

  get urls(): readonly string[] {
    return this.options.members.map(({ url }) => url);
  }

  /** One picture. Raises EndpointError where no server gives one within the time or the attempts, or says that settings are wrong. */
  async ask(asked: Asked, within: Deadline, maxAttempts: number): Promise<Answered> {
    const policy: AskPolicy = {
      maxAttempts,
      attemptTimeoutMs: this.options.timeoutS * 1000,
      backoffBaseMs: 250,
      backoffCapMs: 8000,
      retryAfterCapMs: 60_000,
    };
    while (!within.over) {
      const { reply } = await askMembers(this.#asking(asked, policy, within));
      if (reply?.kind === 'answered') return reply.answered;
      if (reply !== null) throw this.error(reply.found, reply);
      // All are being spared.
      await sleep(this.#clock, AGAIN_MS, within.signal);
    }
    throw this.error('no time was left to ask');
  }

  /** What an attempt means that ended with its time: what is called off says nothing of how long it took. */
  endOf(attempt: Deadline): string {
    const calledOff = attempt.remainingMs() > 0;
    return calledOff ? 'it was called off' : `no answer within ${this.options.timeoutS} s`;
  }

  error(found: string, { url = this.urls.join(', '), next }: { url?: string; next?: string } = {}): EndpointError {
    return new EndpointError(`the ${this.options.name} gives no picture: ${found}`, {
      where: url,
      next:
        next ??
        'Check that it runs and what its log says, then run the same command again: the run goes on from its last checkpoint.',
    });
  }

  #asking(asked: Asked, policy: AskPolicy, within: Deadline): Asking<M, FoundAt> {
    const { random = Math.random, attempt: once } = this.options;
    let last: FoundAt | null = null;
    const ask = async (member: M, attempt: Deadline): Promise<Tried<FoundAt>> => {
      const tried = await once(member, asked, attempt);
      if (tried.reply.kind === 'none' && tried.next === 'busy') {
        this.#absence.goesOn(`${member.url}: ${tried.reply.found}`);
      } else if (tried.next === 'done') this.#absence.isOver();
      // An attempt that the end of the time cut short says less than the one before it.
      if (within.over && last !== null && tried.next !== 'done') return { ...tried, reply: last };
      last = { ...tried.reply, url: member.url };
      return { ...tried, reply: last };
    };
    return { members: this.#members, policy, clock: this.#clock, random, within, ask };
  }
}
