/**
 * Decides whose turn it is when many callers ask for little: start-time fair queueing (Goyal, Vin and Cheng, 1996) with equal shares and equal costs,
 * on two levels. Callers share the turns, and a caller's runs share its turns. Names are free, so naming more runs must not earn a caller more turns.
 * Pure.
 */

/** Whom something that waits belongs to. */
export interface Owner {
  /** A property of the caller that it cannot choose freely: its address. */
  readonly caller: string;
  readonly run: string;
}

export interface QueueLimits {
  /** Things of one run that wait. */
  readonly perRun: number;
  /** Things that wait, over all. */
  readonly total: number;
  /** Things of one run that are under way. */
  readonly underWay: number;
}

/** A participant that takes turns on its level. */
interface Flow {
  readonly name: string;
  /** The virtual time at which its next turn begins; of no meaning while it has had no turn, or has nothing waiting and is not ahead of its time. */
  start: number;
  /** Whether it has had no turn yet. */
  isNew: boolean;
  /** Its number in the order of arrival, among participants that had nothing waiting. */
  came: number;
}

/** One level: its virtual time, which is the start of the last turn given, and the participants that take turns on it. */
class Level<F extends Flow> {
  readonly flows = new Map<string, F>();
  /** Flows with something waiting. */
  readonly waiting = new Set<F>();
  /** Idle flows, in the order in which they became idle. */
  readonly #idle = new Set<F>();
  #now = 0;
  #came = 0;
  /** When the next turn of all newcomers begins: together they take turns as one, so that a name that is another one each time gets no more turns than a name that stays. */
  #line = 0;
  #lineTurns = 0;
  #newcomers = 0;

  /** @param sizeOf how much one has waiting. */
  constructor(readonly sizeOf: (flow: F) => number) {}

  /** For a participant with nothing waiting that arrives or returns. It starts now, or later if it had more than its share. */
  enter(flow: F): void {
    this.flows.set(flow.name, flow);
    this.#idle.delete(flow);
    this.waiting.add(flow);
    flow.came = this.#came++;
    flow.start = Math.max(flow.start, this.#now);
    if (flow.isNew && this.#newcomers++ === 0) this.#line = Math.max(this.#line, this.#now);
  }

  /** Call when a flow has nothing waiting any more. */
  leave(flow: F): void {
    if (this.waiting.delete(flow) && flow.isNew) this.#newcomers--;
  }

  /** Gives a turn. A flow that could not take its turns for a while does not take them all at once later. */
  give(flow: F): void {
    this.#now = Math.max(this.#now, this.#startOf(flow));
    flow.start = this.#now + 1;
    if (!flow.isNew) return;
    this.#line = this.#now + 1;
    this.#lineTurns++;
    this.#newcomers--;
    flow.isNew = false;
  }

  /**
   * Orders flows by whose turn comes first. A newcomer goes before a known flow with the same start. Among newcomers, every other turn goes to the
   * one with most waiting: names are free but waiting requests are not, so no number of names with less waiting can hold up a run. The turns between
   * go to whoever came first.
   */
  readonly inTurn = (a: F, b: F): number => {
    const later = this.#startOf(a) - this.#startOf(b) || Number(b.isNew) - Number(a.isNew);
    if (later !== 0 || !a.isNew) return later;
    const bySize = this.#lineTurns % 2 === 0 ? this.sizeOf(b) - this.sizeOf(a) : 0;
    return bySize || a.came - b.came;
  };

  /**
   * The flow that gives way when there is no room; null when nothing waits. It is the flow whose last waiting item would wait longest. Among
   * newcomers it is the one with the fewest items waiting, and among those the one that came first: a later one has not had time to gather more.
   */
  last(): F | null {
    const endOf = (flow: F): number => (flow.isNew ? this.#line + this.#newcomers : flow.start + this.sizeOf(flow));
    let last: F | null = null;
    for (const flow of this.waiting) {
      if (last === null) {
        last = flow;
        continue;
      }
      const later = endOf(flow) - endOf(last) || Number(flow.isNew) - Number(last.isNew);
      const gives = later || (flow.isNew ? this.sizeOf(last) - this.sizeOf(flow) : 0) || last.came - flow.came;
      if (gives > 0) last = flow;
    }
    return last;
  }

  /** Call when nothing waits on this level: then nobody has had more than its share. */
  catchUp(flow: F): void {
    if (this.waiting.size === 0) this.#now = Math.max(this.#now, flow.start);
  }

  #startOf(flow: F): number {
    return flow.isNew ? this.#line : flow.start;
  }

  /**
   * For a participant with nothing waiting and nothing under way. A limited number of them is remembered: a run that pauses between its requests must
   * not return as a new one, however many names come and go meanwhile. A participant that had no turn is as good as new.
   */
  rest(flow: F): void {
    if (flow.isNew) {
      this.flows.delete(flow.name);
      return;
    }
    this.#idle.add(flow);
    if (this.#idle.size <= mostIdle) return;
    for (const oldest of this.#idle) {
      this.#idle.delete(oldest);
      this.flows.delete(oldest.name);
      break;
    }
  }
}

interface Run<T> extends Flow {
  readonly waiting: T[];
  underWay: number;
}

interface Caller<T> extends Flow {
  readonly runs: Level<Run<T>>;
  waiting: number;
  underWay: number;
}

/** Runs of one caller, and callers, that are remembered while they have nothing to do. */
const mostIdle = 1024;

/** The item that was taken; `end` is to be called when it is no longer under way. */
export interface QueueTurn<T> {
  readonly item: T;
  readonly end: () => void;
}

export class FairQueue<T> {
  readonly #callers = new Level<Caller<T>>(({ waiting }) => waiting);
  #waiting = 0;

  constructor(readonly limits: QueueLimits) {}

  /** Things that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Callers and runs that it remembers. */
  get known(): number {
    return [...this.#callers.flows.values()].reduce((sum, { runs }) => sum + 1 + runs.flows.size, 0);
  }

  /** The items under way and waiting, by the name of the run, whatever its callers; runs with neither are left out. */
  runs(): ReadonlyMap<string, { readonly inFlight: number; readonly waiting: number }> {
    const sums = new Map<string, { readonly inFlight: number; readonly waiting: number }>();
    for (const { runs } of this.#callers.flows.values()) {
      for (const { name, underWay, waiting } of runs.flows.values()) {
        if (underWay + waiting.length === 0) continue;
        const before = sums.get(name) ?? { inFlight: 0, waiting: 0 };
        sums.set(name, { inFlight: before.inFlight + underWay, waiting: before.waiting + waiting.length });
      }
    }
    return sums;
  }

  /**
   * Lets an item wait. `again`: it had its turn before and goes first among its run's waiting items, whatever the limits. Returns the item that
   * cannot wait for lack of room: this one, or one of the caller with the most waiting; see `Level.last`.
   */
  push(owner: Owner, item: T, again = false): T | null {
    const caller = this.#callers.flows.get(owner.caller) ?? newCaller<T>(owner.caller);
    const run = caller.runs.flows.get(owner.run) ?? newRun<T>(owner.run);
    if (!again && run.waiting.length >= this.limits.perRun) return item;
    if (caller.waiting === 0) this.#callers.enter(caller);
    if (run.waiting.length === 0) caller.runs.enter(run);
    if (again) run.waiting.unshift(item);
    else run.waiting.push(item);
    caller.waiting++;
    this.#waiting++;
    return again || this.#waiting <= this.limits.total ? null : this.#pushOut();
  }

  /** Takes the first item that may go, in the order of turns; null if none may. */
  take(mayGo: (item: T) => boolean): QueueTurn<T> | null {
    for (const caller of [...this.#callers.waiting].sort(this.#callers.inTurn)) {
      const found = this.#first(caller, mayGo);
      if (found === null) continue;
      const { run, at } = found;
      const item = run.waiting[at];
      caller.runs.give(run);
      this.#callers.give(caller);
      run.underWay++;
      caller.underWay++;
      this.#remove(caller, run, at);
      caller.runs.catchUp(run);
      this.#callers.catchUp(caller);
      let ended = false;
      const end = (): void => {
        if (ended) return;
        ended = true;
        run.underWay--;
        caller.underWay--;
        this.#restIfIdle(caller, run);
      };
      return { item, end };
    }
    return null;
  }

  /** Removes an item, which does not count as a turn; false if it is not waiting. */
  drop({ caller: callerName, run: runName }: Owner, item: T): boolean {
    const caller = this.#callers.flows.get(callerName);
    const run = caller?.runs.flows.get(runName);
    const at = run?.waiting.indexOf(item) ?? -1;
    if (caller === undefined || run === undefined || at < 0) return false;
    this.#remove(caller, run, at);
    return true;
  }

  /** Takes away all of these that wait. */
  dropAll(isOver: (item: T) => boolean): readonly T[] {
    const dropped: T[] = [];
    for (const caller of [...this.#callers.waiting]) {
      for (const run of [...caller.runs.waiting]) {
        for (let at = run.waiting.length - 1; at >= 0; at--) {
          if (!isOver(run.waiting[at])) continue;
          dropped.push(run.waiting[at]);
          this.#remove(caller, run, at);
        }
      }
    }
    return dropped;
  }

  #first(caller: Caller<T>, mayGo: (item: T) => boolean): { readonly run: Run<T>; readonly at: number } | null {
    let best: { readonly run: Run<T>; readonly at: number } | null = null;
    for (const run of caller.runs.waiting) {
      if (run.underWay >= this.limits.underWay) continue;
      if (best !== null && caller.runs.inTurn(run, best.run) >= 0) continue;
      const at = run.waiting.findIndex(mayGo);
      if (at >= 0) best = { run, at };
    }
    return best;
  }

  #pushOut(): T | null {
    let greediest: Caller<T> | null = null;
    for (const caller of this.#callers.waiting) {
      if (greediest === null || caller.waiting > greediest.waiting) greediest = caller;
    }
    const last = greediest?.runs.last() ?? null;
    if (greediest === null || last === null) return null;
    const at = last.waiting.length - 1;
    const item = last.waiting[at];
    this.#remove(greediest, last, at);
    return item;
  }

  #remove(caller: Caller<T>, run: Run<T>, at: number): void {
    run.waiting.splice(at, 1);
    caller.waiting--;
    this.#waiting--;
    if (run.waiting.length === 0) caller.runs.leave(run);
    if (caller.waiting === 0) this.#callers.leave(caller);
    this.#restIfIdle(caller, run);
  }

  #restIfIdle(caller: Caller<T>, run: Run<T>): void {
    if (run.waiting.length + run.underWay === 0) caller.runs.rest(run);
    if (caller.waiting + caller.underWay === 0) this.#callers.rest(caller);
  }
}

function newRun<T>(name: string): Run<T> {
  return { name, start: 0, isNew: true, came: 0, waiting: [], underWay: 0 };
}

function newCaller<T>(name: string): Caller<T> {
  const runs = new Level<Run<T>>(({ waiting }) => waiting.length);
  return { name, start: 0, isNew: true, came: 0, runs, waiting: 0, underWay: 0 };
}
