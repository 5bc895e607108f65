/** One reward server of a pool, as its clients see it: how much it has to do, and whether it is being spared. */
import { Breaker } from '../../../balance/breaker.js';
import type { Clock } from '../../../core/clock.js';

/** Failures in a row after which a server is left alone (or, where only its judge fails, asked after the others), and for how long. */
const failureLimit = 3;
const pauseMs = 10_000;

export class Member {
  readonly #breaker: Breaker;
  readonly #judge: Breaker;
  #busyUntil = 0;
  /** Items that it is scoring for this pool. */
  underWay = 0;

  constructor(
    /** Base URL, without a slash at its end. */
    readonly url: string,
    readonly clock: Clock,
  ) {
    this.#breaker = new Breaker(clock, failureLimit, pauseMs);
    this.#judge = new Breaker(clock, failureLimit, pauseMs);
  }

  /** Whether it may be asked now. After a pause this lets one caller through, who has to ask: its success ends the pause for all. */
  mayBeAsked(): boolean {
    return this.waitMs() === 0 && this.#breaker.blocking() === null;
  }

  /** How long it asked to be left alone, having too much to do. */
  waitMs(): number {
    return Math.max(0, this.#busyUntil - this.clock.now());
  }

  /** Whether it can be expected to give scores, as far as its judge goes. After a pause this is true for one caller, as above. */
  judges(): boolean {
    return this.#judge.blocking() === null;
  }

  /** It gave a whole reply; `judged`: its judge was not away. */
  answered(judged = true): void {
    this.#breaker.succeeded();
    if (judged) this.#judge.succeeded();
    else this.#judge.failed();
  }

  failed(): void {
    this.#breaker.failed();
  }

  /** It answers, but has too much to do. */
  busyFor(milliseconds: number): void {
    this.#breaker.succeeded();
    this.#busyUntil = Math.max(this.#busyUntil, this.clock.now() + milliseconds);
  }
}

export const routings = ['least_loaded', 'round_robin'] as const;
/** Which of the servers that may be asked is: the one with the least to do, or each in turn. */
export type Routing = (typeof routings)[number];

/** Chooses among servers. */
export class Router {
  #turn = 0;

  constructor(
    readonly members: readonly Member[],
    readonly routing: Routing,
  ) {}

  /** The server to ask next, one whose judge answers if there is any; null where none may be asked but those that were tried. */
  pick(tried: ReadonlySet<Member>): Member | null {
    const turn = this.#turn++;
    const inTurn = this.members.map((_, offset) => this.members[(turn + offset) % this.members.length]);
    const ordered = this.routing === 'round_robin' ? inTurn : inTurn.sort((a, b) => a.underWay - b.underWay);
    const open = ordered.filter((member) => !tried.has(member));
    return (
      open.find((member) => member.judges() && member.mayBeAsked()) ??
      open.find((member) => member.mayBeAsked()) ??
      null
    );
  }

  /** How long until a server that has too much to do may be asked, those aside; null where none has. */
  shortestWaitMs(aside: ReadonlySet<Member>): number | null {
    const others = this.members.filter((member) => !aside.has(member));
    const waits = others.map((member) => member.waitMs()).filter((wait) => wait > 0);
    return waits.length === 0 ? null : Math.min(...waits);
  }
}
