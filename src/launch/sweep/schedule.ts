/**
 * Decides what a sweep does next, and nothing else: no clock, no disk, no process. Its input is the runs and their outcomes, its output the runs that
 * may start and the notices to print. The same results give the same decisions in every order of arrival.
 */
import { InternalError } from '../../core/errors.js';

/** One run of the sweep: a cell of the matrix, or a run that cells start from. */
export interface Job {
  readonly name: string;
  readonly kind: 'cell' | 'parent';
  /** Names of the runs that have to be finished first. */
  readonly parents: readonly string[];
  readonly processes: number;
  readonly numIterations: number;
}

export type Phase =
  | 'queued'
  | 'running'
  /** Another live process holds it. */
  | 'elsewhere'
  /** It has reached a rung of successive halving and waits for the others. */
  | 'at_rung'
  | 'finished'
  /** Successive halving stopped it. */
  | 'stopped'
  | 'failed'
  /** A run that it starts from failed. */
  | 'blocked'
  | 'interrupted';

/** What a run directory says about a run. */
export type RunFolderState =
  | { readonly kind: 'finished'; readonly iteration: number }
  | { readonly kind: 'stopped'; readonly iteration: number; readonly reason: string }
  | { readonly kind: 'elsewhere'; readonly holder: string }
  /**
   * It is not finished; `failed` says why the last attempt failed, if it did. A run that somebody stopped, or whose judge stayed away, was
   * interrupted.
   */
  | {
      readonly kind: 'open';
      readonly iteration: number;
      readonly failed: string | null;
      readonly interrupted: boolean;
      /** It failed with other settings: its folder is set aside before it starts. */
      readonly outdated?: true;
    }
  /** It cannot be continued as it is, whatever is tried. */
  | { readonly kind: 'refused'; readonly reason: string };

/** How an attempt of this sweep ended. */
export type AttemptEnd =
  | { readonly kind: 'finished' }
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'failed'; readonly reason: string; readonly mayRetry: boolean };

/** A message for people; for a stopped run, also for its directory. */
export type Notice =
  | { readonly kind: 'retry'; readonly name: string; readonly retry: number; readonly of: number }
  | { readonly kind: 'gave_up'; readonly name: string; readonly reason: string }
  | { readonly kind: 'blocked'; readonly name: string; readonly by: string }
  | { readonly kind: 'stopped'; readonly name: string; readonly reason: string };

export interface ScheduleOptions {
  /** How often a failed run is restarted. */
  readonly retries: number;
  /** Starts nothing more after the first run that failed for good. */
  readonly failFast: boolean;
  readonly halving: Halving | null;
  /** A cell's metric at a rung, from its records; null if there is none. Called once it has reached the rung. */
  readonly measure: (name: string, iteration: number) => number | null;
}

/** A run that may start, and how far it runs: less than its `numIterations` up to a rung. */
export interface Start {
  readonly job: Job;
  readonly untilIteration: number;
}

interface Tracked {
  readonly job: Job;
  readonly children: Tracked[];
  readonly rungs: readonly number[];
  phase: Phase;
  /** Position in the queue: a retry goes to the end. */
  turn: number;
  failures: number;
  /** Number of rungs passed. */
  passed: number;
  /** Iterations that are certainly done: those of a rung or of the whole run. */
  reached: number;
  reason: string | null;
}

export class Schedule {
  readonly #runs = new Map<string, Tracked>();
  #nextTurn: number;
  #halted = false;
  /** All runs that were queued when it was last sorted, though some may have started or been blocked since; null: out of date. */
  #queue: Tracked[] | null = null;

  /** Raises InternalError for a parent that is not among the jobs. */
  constructor(
    jobs: readonly Job[],
    private readonly options: ScheduleOptions,
  ) {
    const rungs = options.halving?.rungs ?? [];
    for (const [turn, job] of jobs.entries()) {
      this.#runs.set(job.name, {
        job,
        children: [],
        rungs: job.kind === 'cell' ? rungs.filter((rung) => rung < job.numIterations) : [],
        phase: 'queued',
        turn,
        failures: 0,
        passed: 0,
        reached: 0,
        reason: null,
      });
    }
    for (const run of this.#runs.values()) {
      for (const parent of run.job.parents) this.#run(parent).children.push(run);
    }
    this.#nextTurn = jobs.length;
  }

  /** Takes the state of the run directories, at the start or when another process has released a run. */
  found(states: ReadonlyMap<string, RunFolderState>): Notice[] {
    // What an unfinishable run blocks depends on what is already finished.
    const last = (kind: RunFolderState['kind']): number => (kind === 'refused' || kind === 'stopped' ? 1 : 0);
    const notices = [...states]
      .sort(([, a], [, b]) => last(a.kind) - last(b.kind))
      .flatMap(([name, found]) => this.#find(this.#run(name), found));
    return [...notices, ...this.#decideRungs()];
  }

  /** The runs that may start now, in order. Starting one while going through them is allowed. */
  *startable(): Generator<Start> {
    if (this.#halted) return;
    const queue = this.#inOrder();
    for (const run of queue) {
      if (run.phase !== 'queued' || !this.#parentsFinished(run)) continue;
      yield { job: run.job, untilIteration: this.#target(run) };
    }
  }

  started(name: string): void {
    const run = this.#run(name);
    if (run.phase !== 'queued') throw new InternalError(`${name} is started while it is ${run.phase}`);
    run.phase = 'running';
  }

  /** An attempt of this sweep ended. */
  ended(name: string, end: AttemptEnd): Notice[] {
    const run = this.#run(name);
    if (run.phase !== 'running') throw new InternalError(`${name} ended while it was ${run.phase}`);
    switch (end.kind) {
      case 'finished':
        run.reached = this.#target(run);
        this.#settle(run);
        return this.#decideRungs();
      case 'interrupted':
        run.phase = 'interrupted';
        run.reason = 'it was stopped';
        return this.#halted ? [] : [...this.#block(run), ...this.#decideRungs()];
      case 'failed':
        return this.#failed(run, end);
    }
  }

  /** Another process turned out to hold a run that was started. */
  heldElsewhere(name: string, holder: string): void {
    const run = this.#run(name);
    run.phase = 'elsewhere';
    run.reason = holder;
  }

  /** Starts nothing more. */
  halt(): void {
    this.#halted = true;
  }

  get halted(): boolean {
    return this.#halted;
  }

  /** Whether nothing is under way and nothing will start. */
  get done(): boolean {
    if (this.names('running').length > 0) return false;
    return this.#halted || (this.names('elsewhere').length === 0 && this.startable().next().done === true);
  }

  phase(name: string): Phase {
    return this.#run(name).phase;
  }

  /** Why a run is in its phase, if there is more to say. */
  reason(name: string): string | null {
    return this.#run(name).reason;
  }

  /** The runs in a phase; queued ones in the order in which they will run. */
  names(phase: Phase): string[] {
    return [...this.#runs.values()]
      .filter((run) => run.phase === phase)
      .sort((a, b) => a.turn - b.turn)
      .map((run) => run.job.name);
  }

  get jobs(): readonly Job[] {
    return [...this.#runs.values()].map((run) => run.job);
  }

  #find(run: Tracked, found: RunFolderState): Notice[] {
    switch (found.kind) {
      case 'finished':
        run.reached = Math.max(found.iteration, run.job.numIterations);
        this.#settle(run);
        return [];
      case 'stopped':
        run.reached = found.iteration;
        run.phase = 'stopped';
        run.reason = found.reason;
        return this.#block(run);
      case 'elsewhere':
        run.phase = 'elsewhere';
        run.reason = found.holder;
        return [];
      case 'open':
        run.reached = found.iteration;
        // A run that failed under another process while this sweep was watching is this sweep's to retry.
        if (run.phase === 'elsewhere' && found.failed !== null) {
          return this.#failed(run, { kind: 'failed', reason: found.failed, mayRetry: true });
        }
        this.#settle(run);
        return [];
      case 'refused':
        return this.#failed(run, { kind: 'failed', reason: found.reason, mayRetry: false });
    }
  }

  #failed(run: Tracked, end: Extract<AttemptEnd, { kind: 'failed' }>): Notice[] {
    run.failures++;
    run.reason = end.reason;
    const { retries } = this.options;
    if (end.mayRetry && run.failures <= retries && !this.#halted) {
      run.turn = this.#nextTurn++;
      this.#enqueue(run);
      return [{ kind: 'retry', name: run.job.name, retry: run.failures, of: retries }];
    }
    run.phase = 'failed';
    if (this.options.failFast) this.#halted = true;
    return [{ kind: 'gave_up', name: run.job.name, reason: end.reason }, ...this.#block(run), ...this.#decideRungs()];
  }

  /** Blocks everything that starts from a run that will not finish. */
  #block(run: Tracked): Notice[] {
    const notices: Notice[] = [];
    const visit = (parent: Tracked): void => {
      for (const child of parent.children) {
        if (child.phase !== 'queued') continue;
        child.phase = 'blocked';
        child.reason = `it starts from ${run.job.name}`;
        notices.push({ kind: 'blocked', name: child.job.name, by: run.job.name });
        visit(child);
      }
    };
    visit(run);
    return notices;
  }

  #inOrder(): readonly Tracked[] {
    if (this.#queue === null) {
      this.#queue = [...this.#runs.values()].filter((run) => run.phase === 'queued').sort((a, b) => a.turn - b.turn);
    }
    // Runs started from its front need not be checked again.
    const first = this.#queue.findIndex((run) => run.phase === 'queued');
    if (first !== 0) this.#queue = first < 0 ? [] : this.#queue.slice(first);
    return this.#queue;
  }

  #enqueue(run: Tracked): void {
    run.phase = 'queued';
    this.#queue = null;
  }

  #parentsFinished(run: Tracked): boolean {
    return run.job.parents.every((parent) => this.#run(parent).phase === 'finished');
  }

  #target(run: Tracked): number {
    return run.rungs[run.passed] ?? run.job.numIterations;
  }

  /** Updates a run's phase after it has reached a number of iterations. */
  #settle(run: Tracked): void {
    const { phase } = run;
    if (phase === 'stopped' || phase === 'failed' || phase === 'blocked') return;
    const rung = run.rungs[run.passed];
    if (rung !== undefined && run.reached >= rung) run.phase = 'at_rung';
    else if (run.reached >= run.job.numIterations) run.phase = 'finished';
    else if (phase !== 'queued') this.#enqueue(run);
  }

  /** Decides rung after rung, as far as all contenders have come. */
  #decideRungs(): Notice[] {
    const { halving, measure } = this.options;
    // After the sweep is halted, a run that has not reached a rung may still reach it in the next sweep.
    if (halving === null || this.#halted) return [];
    const notices: Notice[] = [];
    for (const [level, rung] of halving.rungs.entries()) {
      const here = [...this.#runs.values()].filter((run) => run.rungs[level] === rung);
      const underWay = here.some(
        (run) => run.passed === level && ['queued', 'running', 'elsewhere'].includes(run.phase),
      );
      if (underWay) return notices;
      const contenders = here.filter((run) => run.reached >= rung && run.phase !== 'failed' && run.phase !== 'blocked');
      if (!contenders.some((run) => run.phase === 'at_rung' && run.passed === level)) continue;
      const ranked = rank(
        halving,
        contenders.map((run) => ({ name: run.job.name, value: measure(run.job.name, rung) })),
      );
      for (const { name, kept, reason } of ranked) {
        const run = this.#run(name);
        if (run.passed !== level || run.phase !== 'at_rung') continue;
        if (kept) {
          run.passed++;
          this.#settle(run);
        } else if (run.reached >= run.job.numIterations) {
          // It finished before there were rungs: nothing is left to save.
          run.phase = 'finished';
        } else {
          run.phase = 'stopped';
          run.reason = `at iteration ${rung}: ${reason}`;
          notices.push({ kind: 'stopped', name, reason: run.reason }, ...this.#block(run));
        }
      }
    }
    return notices;
  }

  #run(name: string): Tracked {
    const run = this.#runs.get(name);
    if (run === undefined) throw new InternalError(`the sweep knows no run ${name}`);
    return run;
  }
}

export interface Halving {
  /** Name of a metric, such as `validation/sampled/mean`; higher is better, unless it ends in `loss` or `kl`. */
  readonly metric: string;
  /** Iterations at which runs are compared, ascending. */
  readonly rungs: readonly number[];
  /** The share of them that continues, in (0, 1]; at least one does. */
  readonly keep: number;
}

export interface Ranked {
  readonly name: string;
  readonly kept: boolean;
  /** In words: the value, the rank, how many continue. */
  readonly reason: string;
}

/** Whether lower values of a metric are better. */
export function lessIsBetter(metric: string): boolean {
  return /(^|[/_])(loss|kl)$/.test(metric);
}

/** Ranks runs, best first. Runs without a finite value come last; ties keep their order. */
export function rank(
  halving: Halving,
  contenders: readonly { readonly name: string; readonly value: number | null }[],
): Ranked[] {
  const sign = lessIsBetter(halving.metric) ? -1 : 1;
  const score = (value: number | null): number =>
    value === null || !Number.isFinite(value) ? Number.NEGATIVE_INFINITY : sign * value;
  const order = contenders
    .map((contender) => ({ ...contender, score: score(contender.value) }))
    .sort((a, b) => (a.score === b.score ? 0 : b.score - a.score));
  // The product of two decimal fractions can be slightly above a whole number.
  const kept = Math.max(1, Math.ceil(order.length * halving.keep - 1e-9));
  return order.map(({ name, value }, index) => ({
    name,
    kept: index < kept,
    reason: `${halving.metric} ${value === null ? 'was not recorded' : value.toPrecision(4)}, place ${index + 1} of ${order.length}, ${kept} go on`,
  }));
}
