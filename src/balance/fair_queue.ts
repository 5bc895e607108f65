/**
 * Whose turn it is, where many ask for little: start-time fair queueing (Goyal, Vin and Cheng, 1996) with equal shares and equal costs, on
 * two levels. Callers share the turns, and a caller's turns are shared by the runs that it names: a name costs nothing, so that more names
 * must not mean more turns. Pure.
 */

/** Whom something that waits belongs to. */
export interface Owner {
  /** What a caller cannot choose freely: its address. */
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

/** One that takes turns on its level. */
interface Flow {
  /** The virtual time at which its next turn begins; of no meaning while it has nothing waiting and is not ahead of its time. */
  start: number;
  /** Whether it has had no turn yet. */
  isNew: boolean;
}

/** The virtual time of one level: the start of the turn that was given last. */
class Turns {
  #now = 0;

  /**
   * For one that has nothing waiting and comes, or comes back. It starts now, or later where it had more than its share. Those that come
   * for the first time share one line, a turn apart: a name that is another one each time gets no more turns than a name that stays.
   */
  enter(flow: Flow, waiting: Iterable<Flow>): void {
    flow.start = Math.max(flow.start, this.#now);
    if (!flow.isNew) return;
    for (const other of waiting) if (other.isNew && other !== flow) flow.start = Math.max(flow.start, other.start + 1);
  }

  /**
   * Gives a turn. One that could not take its turns for a while does not take them all at once later. `last`: nothing else waits on this
   * level, and so nobody has had more than its share.
   */
  give(flow: Flow, last: boolean): void {
    this.#now = Math.max(this.#now, flow.start);
    flow.start = this.#now + 1;
    flow.isNew = false;
    if (last) this.#now = flow.start;
  }

  /** Whether one that has nothing to do can be forgotten. */
  isPast(flow: Flow): boolean {
    return flow.start <= this.#now;
  }
}

interface Run<T> extends Flow {
  readonly name: string;
  readonly waiting: T[];
  underWay: number;
}

interface Caller<T> extends Flow {
  readonly name: string;
  readonly turns: Turns;
  readonly runs: Map<string, Run<T>>;
  waiting: number;
}

/**
 * Runs of one caller, and callers, that are remembered while they have nothing to do; those that had a turn longest ago are forgotten first.
 * A run that pauses between its requests must not come back as a new one each time, however many names come and go meanwhile.
 */
const mostIdle = 1024;

/** What was taken; `end` is to be called when it is no longer under way. */
export interface Taken<T> {
  readonly item: T;
  readonly end: () => void;
}

export class FairQueue<T> {
  readonly #turns = new Turns();
  readonly #callers = new Map<string, Caller<T>>();
  #waiting = 0;

  constructor(readonly limits: QueueLimits) {}

  /** Things that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Callers and runs that it remembers. */
  get known(): number {
    return [...this.#callers.values()].reduce((sum, { runs }) => sum + 1 + runs.size, 0);
  }

  /** What is under way and waits, by the name of the run, whoever gave it; those that have neither are left out. */
  runs(): ReadonlyMap<string, { readonly inFlight: number; readonly waiting: number }> {
    const sums = new Map<string, { readonly inFlight: number; readonly waiting: number }>();
    for (const { runs } of this.#callers.values()) {
      for (const [name, { underWay, waiting }] of runs) {
        if (underWay + waiting.length === 0) continue;
        const before = sums.get(name) ?? { inFlight: 0, waiting: 0 };
        sums.set(name, { inFlight: before.inFlight + underWay, waiting: before.waiting + waiting.length });
      }
    }
    return sums;
  }

  /**
   * Lets it wait. `again`: it had its turn before and goes first of what its run has waiting, whatever the limits. Returns what cannot
   * wait for want of room: this one, or another one of the caller who has most waiting, the one whose turn would come last.
   */
  push(owner: Owner, item: T, again = false): T | null {
    const caller = this.#caller(owner.caller);
    const run = this.#run(caller, owner.run);
    if (again) run.waiting.unshift(item);
    else if (run.waiting.length >= this.limits.perRun) return item;
    else run.waiting.push(item);
    this.#count(caller, 1);
    return again || this.#waiting <= this.limits.total ? null : this.#pushOut();
  }

  /** Takes the first that may go, in the order of turns; null where none may. */
  take(mayGo: (item: T) => boolean): Taken<T> | null {
    const callers = [...this.#callers.values()].filter(({ waiting }) => waiting > 0).sort(inTurn);
    for (const caller of callers) {
      const found = this.#first(caller, mayGo);
      if (found === null) continue;
      const { run, at } = found;
      const [item] = run.waiting.splice(at, 1);
      this.#count(caller, -1);
      caller.turns.give(run, caller.waiting === 0);
      this.#turns.give(caller, this.#waiting === 0);
      run.underWay++;
      moveToEnd(caller.runs, run);
      moveToEnd(this.#callers, caller);
      this.#forgetOldest(caller);
      let ended = false;
      const end = (): void => {
        if (!ended) run.underWay--;
        ended = true;
      };
      return { item, end };
    }
    return null;
  }

  /** Takes one thing away, which does not count as a turn; false where it does not wait. */
  drop({ caller: name, run: runName }: Owner, item: T): boolean {
    const caller = this.#callers.get(name);
    const waiting = caller?.runs.get(runName)?.waiting ?? [];
    const at = waiting.indexOf(item);
    if (caller === undefined || at < 0) return false;
    waiting.splice(at, 1);
    this.#count(caller, -1);
    return true;
  }

  /** Takes away all of these that wait. */
  dropAll(isOver: (item: T) => boolean): readonly T[] {
    const dropped: T[] = [];
    for (const caller of this.#callers.values()) {
      for (const { waiting } of caller.runs.values()) {
        const over = waiting.filter(isOver);
        waiting.splice(0, waiting.length, ...waiting.filter((item) => !over.includes(item)));
        this.#count(caller, -over.length);
        dropped.push(...over);
      }
    }
    return dropped;
  }

  #first(caller: Caller<T>, mayGo: (item: T) => boolean): { readonly run: Run<T>; readonly at: number } | null {
    let best: { readonly run: Run<T>; readonly at: number } | null = null;
    for (const run of caller.runs.values()) {
      if (run.waiting.length === 0 || run.underWay >= this.limits.underWay) continue;
      if (best !== null && inTurn(run, best.run) >= 0) continue;
      const at = run.waiting.findIndex(mayGo);
      if (at >= 0) best = { run, at };
    }
    return best;
  }

  #pushOut(): T | null {
    let greediest: Caller<T> | null = null;
    for (const caller of this.#callers.values()) {
      if (greediest === null || caller.waiting > greediest.waiting) greediest = caller;
    }
    let last: Run<T> | null = null;
    const endOf = ({ start, waiting }: Run<T>): number => start + waiting.length;
    for (const run of greediest?.runs.values() ?? []) {
      if (run.waiting.length > 0 && (last === null || endOf(run) >= endOf(last))) last = run;
    }
    if (greediest === null || last === null) return null;
    this.#count(greediest, -1);
    return last.waiting.pop() ?? null;
  }

  #caller(name: string): Caller<T> {
    const known = this.#callers.get(name);
    if (known !== undefined && known.waiting > 0) return known;
    const caller = known ?? { ...fresh, name, turns: new Turns(), runs: new Map<string, Run<T>>(), waiting: 0 };
    this.#turns.enter(
      caller,
      [...this.#callers.values()].filter(({ waiting }) => waiting > 0),
    );
    this.#callers.set(name, caller);
    return caller;
  }

  #run({ turns, runs }: Caller<T>, name: string): Run<T> {
    const known = runs.get(name);
    if (known !== undefined && known.waiting.length > 0) return known;
    const run = known ?? { ...fresh, name, waiting: [], underWay: 0 };
    turns.enter(
      run,
      [...runs.values()].filter(({ waiting }) => waiting.length > 0),
    );
    runs.set(name, run);
    return run;
  }

  #count(caller: Caller<T>, more: number): void {
    caller.waiting += more;
    this.#waiting += more;
  }

  /** Who had more than its share is kept: it would come back too early. */
  #forgetOldest(caller: Caller<T>): void {
    const isIdle = ({ waiting, underWay }: Run<T>): boolean => waiting.length === 0 && underWay === 0;
    if (caller.runs.size > mostIdle) dropFirst(caller.runs, (run) => isIdle(run) && caller.turns.isPast(run));
    if (this.#callers.size <= mostIdle) return;
    dropFirst(this.#callers, (one) => this.#turns.isPast(one) && [...one.runs.values()].every(isIdle));
  }
}

/** Keeps a map in the order of last turns. */
function moveToEnd<V extends { readonly name: string }>(map: Map<string, V>, value: V): void {
  map.delete(value.name);
  map.set(value.name, value);
}

function dropFirst<V>(map: Map<string, V>, mayGo: (value: V) => boolean): void {
  for (const [name, value] of map) {
    if (!mayGo(value)) continue;
    map.delete(name);
    return;
  }
}

const fresh: Readonly<Flow> = { start: 0, isNew: true };

/** Of two whose turns begin at the same time it is the newcomer's. */
function inTurn(a: Flow, b: Flow): number {
  return a.start - b.start || Number(b.isNew) - Number(a.isNew);
}
