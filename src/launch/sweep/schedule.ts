/**
 * Decides what a sweep does next, without a clock, disk or process. Takes the runs and their outcomes. Returns the runs
 * that may start and the notices to print. The order in which outcomes arrive does not change its decisions.
 */
import { InternalError } from '../../core/errors.js';

/** One run of the sweep: a cell of the matrix, or a parent of cells. */
export interface Job {
  readonly name: string;
  readonly kind: 'cell' | 'parent';
  /** Names of the runs that have to finish first. */
  readonly parents: readonly string[];
  readonly processes: number;
}

export type Phase =
  | 'queued'
  | 'running'
  /** Another live process holds the run. */
  | 'elsewhere'
  | 'finished'
  | 'failed'
  /** One of its parents failed. */
  | 'blocked'
  | 'interrupted';

/** The state of a run according to its directory. */
export type RunFolderState =
  | { readonly kind: 'finished' }
  | { readonly kind: 'elsewhere'; readonly holder: string }
  /**
   * Not finished. `failed` is why the last attempt failed, or null. A run that someone stopped, or whose judge stayed
   * away, counts as interrupted.
   */
  | {
      readonly kind: 'open';
      readonly failed: string | null;
      readonly interrupted: boolean;
      /** The run failed with other settings. Its folder is moved aside before it starts. */
      readonly outdated?: true;
    }
  /** The run cannot continue, and a retry would not help. */
  | { readonly kind: 'refused'; readonly reason: string };

/** How an attempt of this sweep ended. */
export type AttemptEnd =
  | { readonly kind: 'finished' }
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'failed'; readonly reason: string; readonly mayRetry: boolean };

/** A message to the user. */
export type Notice =
  | { readonly kind: 'retry'; readonly name: string; readonly retry: number; readonly of: number }
  | { readonly kind: 'gave_up'; readonly name: string; readonly reason: string }
  | { readonly kind: 'blocked'; readonly name: string; readonly by: string };

export interface ScheduleOptions {
  /** Maximum number of retries of a failed run. */
  readonly retries: number;
  /** Whether to start nothing more after the first run that failed for good. */
  readonly failFast: boolean;
}

interface Tracked {
  readonly job: Job;
  readonly children: Tracked[];
  phase: Phase;
  /** Position in the queue. A retry goes to the end. */
  turn: number;
  failures: number;
  reason: string | null;
}

export class Schedule {
  readonly #runs = new Map<string, Tracked>();
  #nextTurn: number;
  #halted = false;
  /**
   * All runs that were queued at the last sorting. Some may have started or been blocked since. Null if it has to be
   * sorted again.
   */
  #queue: Tracked[] | null = null;

  /** Raises InternalError for a parent that is not among the jobs. */
  constructor(
    jobs: readonly Job[],
    private readonly options: ScheduleOptions,
  ) {
    for (const [turn, job] of jobs.entries()) {
      this.#runs.set(job.name, {
        job,
        children: [],
        phase: 'queued',
        turn,
        failures: 0,
        reason: null,
      });
    }
    for (const run of this.#runs.values()) {
      for (const parent of run.job.parents) this.#run(parent).children.push(run);
    }
    this.#nextTurn = jobs.length;
  }

  /** Updates runs from the state of their directories, at the start or when another process has released a run. */
  update(states: ReadonlyMap<string, RunFolderState>): Notice[] {
    // Refused runs come last, because a refused run blocks only children that are not yet finished.
    const isLast = ({ kind }: RunFolderState): number => Number(kind === 'refused');
    return [...states]
      .sort(([, a], [, b]) => isLast(a) - isLast(b))
      .flatMap(([name, found]) => this.#updateRun(this.#run(name), found));
  }

  /** The runs that may start now, in order. The caller may start runs while iterating. */
  *startable(): Generator<Job> {
    if (this.#halted) return;
    const queue = this.#inOrder();
    for (const run of queue) {
      if (run.phase !== 'queued' || !this.#parentsFinished(run)) continue;
      yield run.job;
    }
  }

  started(name: string): void {
    const run = this.#run(name);
    if (run.phase !== 'queued') throw new InternalError(`${name} is started while it is ${run.phase}`);
    run.phase = 'running';
  }

  /** Records how an attempt of this sweep ended. */
  ended(name: string, end: AttemptEnd): Notice[] {
    const run = this.#run(name);
    if (run.phase !== 'running') throw new InternalError(`${name} ended while it was ${run.phase}`);
    switch (end.kind) {
      case 'finished':
        run.phase = 'finished';
        return [];
      case 'interrupted':
        run.phase = 'interrupted';
        run.reason = 'it was stopped';
        return this.#halted ? [] : this.#block(run);
      case 'failed':
        return this.#failed(run, end);
    }
  }

  /** Records that another process holds a run that was to start. */
  claimedElsewhere(name: string, holder: string): void {
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

  /** Whether nothing is running and nothing will start. */
  get done(): boolean {
    if (this.names('running').length > 0) return false;
    return this.#halted || (this.names('elsewhere').length === 0 && this.startable().next().done === true);
  }

  phase(name: string): Phase {
    return this.#run(name).phase;
  }

  /** Why a run is in its phase. Null if there is nothing to add. */
  reason(name: string): string | null {
    return this.#run(name).reason;
  }

  /** The runs in a phase. Queued runs are in the order in which they will run. */
  names(phase: Phase): string[] {
    return [...this.#runs.values()]
      .filter((run) => run.phase === phase)
      .sort((a, b) => a.turn - b.turn)
      .map((run) => run.job.name);
  }

  get jobs(): readonly Job[] {
    return [...this.#runs.values()].map((run) => run.job);
  }

  #updateRun(run: Tracked, found: RunFolderState): Notice[] {
    switch (found.kind) {
      case 'finished':
        run.phase = 'finished';
        return [];
      case 'elsewhere':
        run.phase = 'elsewhere';
        run.reason = found.holder;
        return [];
      case 'open':
        // If a run failed in another process while this sweep was watching, this sweep retries it.
        if (run.phase === 'elsewhere' && found.failed !== null) {
          return this.#failed(run, { kind: 'failed', reason: found.failed, mayRetry: true });
        }
        if (run.phase === 'elsewhere') this.#enqueue(run);
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
    return [{ kind: 'gave_up', name: run.job.name, reason: end.reason }, ...this.#block(run)];
  }

  /** Blocks all descendants of a run that will not finish. */
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
    // Runs that were started from the front need not be checked again.
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

  #run(name: string): Tracked {
    const run = this.#runs.get(name);
    if (run === undefined) throw new InternalError(`the sweep knows no run ${name}`);
    return run;
  }
}
