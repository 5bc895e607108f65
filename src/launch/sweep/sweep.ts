/** Carries out a schedule: starts runs when there is room, reports their outcomes, and stops the sweep on request. */
import type { LoadedConfig } from '../../config/load.js';
import { EditrlError, InternalError, JudgeLimitError, must } from '../../core/errors.js';
import type { DeviceKind, Placement } from '../machine/devices.js';
import { RunFailed } from '../processes/failure.js';
import { Schedule, type AttemptEnd, type Notice, type RunFolderState } from './schedule.js';
import type { PlannedJob, SizedJob } from './plan.js';

/** Interval between checks of runs that other processes hold. */
const POLL_MS = 500;

/** Starts runs. Implemented by the Launcher, and by a fake in tests. */
export interface Runner {
  runWithoutParents(
    config: LoadedConfig,
    placement: Placement & { readonly stop: AbortSignal; readonly kill: AbortSignal },
  ): Promise<{ readonly kind: 'finished' | 'already_finished' | 'interrupted' }>;
}

/** Assigns room. Implemented by DeviceSlots, and by a fake in tests. */
export interface Slots {
  /** Number of free slots. */
  free(kind: DeviceKind): number;
  /** Acquires slots, or returns null. `bytes` is the run's share of the machine's memory. */
  tryAcquire(processes: number, kind: DeviceKind, bytes: number): Placement | null;
  release(placement: Placement): void;
}

/** Reads and changes run directories. */
export interface RunWorld {
  inspect(config: LoadedConfig): RunFolderState;
  /** Moves the folder of a run that failed with other settings aside. Null if there is no such folder. */
  setAsideOutdated(config: LoadedConfig): string | null;
}

/** A run in progress. */
export interface RunningJob {
  readonly job: PlannedJob;
  readonly placement: Placement;
  readonly startedMs: number;
}

/** Why an attempt failed, for the user. */
export interface Failure {
  readonly reason: string;
  /** The last lines of the worker's log. */
  readonly lastLines: readonly string[];
  /** What to do about it. Null if unknown, or if the reason includes it. */
  readonly advice: string | null;
}

export type SweepEvent =
  | { readonly kind: 'started'; readonly running: RunningJob }
  | { readonly kind: 'finished'; readonly running: RunningJob; readonly seconds: number }
  | { readonly kind: 'interrupted'; readonly running: RunningJob }
  | { readonly kind: 'failed'; readonly running: RunningJob; readonly failure: Failure; readonly seconds: number }
  | { readonly kind: 'elsewhere'; readonly name: string; readonly holder: string }
  | Notice;

/**
 * Shows the sweep. `begin` comes before any event and passes the schedule and the live map of running jobs. No event
 * follows `end`. Remarks may come before `begin` and after `end`.
 */
export interface SweepView {
  begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void;
  report(event: SweepEvent): void;
  /** Shows a message that belongs to no run. */
  remark(sentence: string): void;
  /** May be called more than once. */
  end(): void;
}

export interface SweepOptions {
  readonly jobs: readonly SizedJob[];
  readonly retries: number;
  readonly failFast: boolean;
  /** Maximum number of runs at once. Null for as many as fit. */
  readonly maxParallel: number | null;
}

export interface SweepServices {
  readonly runner: Runner;
  readonly slots: Slots;
  readonly world: RunWorld;
  readonly view: SweepView;
  /** When aborted, runs checkpoint and stop, and no more runs start. */
  readonly stop: AbortSignal;
  /** When aborted, runs end at once. The signal's reason is the text for their states. `stop` is aborted, too. */
  readonly kill: AbortSignal;
}

/** Runs a sweep to its end and returns its schedule, which contains the outcome of each run. */
export async function runSweep(options: SweepOptions, services: SweepServices): Promise<Schedule> {
  return new Sweep(options, services).run();
}

/** The schedule before anything has started. */
export function openSchedule(
  options: Omit<SweepOptions, 'maxParallel' | 'jobs'> & { readonly jobs: readonly PlannedJob[] },
  world: RunWorld,
): { schedule: Schedule; notices: Notice[] } {
  const schedule = new Schedule(options.jobs, options);
  const notices = schedule.update(new Map(options.jobs.map((job) => [job.name, world.inspect(job.config)])));
  return { schedule, notices };
}

/** Whether a slot of one of these kinds is free. If not, no run needs to be considered. */
export function hasRoom(slots: Pick<Slots, 'free'>, kinds: Iterable<DeviceKind>): boolean {
  return [...kinds].some((kind) => slots.free(kind) > 0);
}

class Sweep {
  readonly #running = new Map<string, RunningJob>();
  readonly #attempts = new Map<string, Promise<void>>();
  readonly #jobs: ReadonlyMap<string, SizedJob>;
  readonly #kinds: ReadonlySet<DeviceKind>;
  readonly #stopRuns = new AbortController();
  readonly #schedule: Schedule;
  readonly #before: readonly Notice[];
  /** An error in the sweep itself, not in a run. */
  #broken: { readonly error: unknown } | null = null;

  constructor(
    private readonly options: SweepOptions,
    private readonly services: SweepServices,
  ) {
    this.#jobs = new Map(options.jobs.map((job) => [job.name, job]));
    this.#kinds = new Set(options.jobs.map(({ device }) => device));
    const { schedule, notices } = openSchedule(options, services.world);
    this.#schedule = schedule;
    this.#before = notices;
  }

  async run(): Promise<Schedule> {
    const { stop, view } = this.services;
    const halt = (): void => this.#halt();
    stop.addEventListener('abort', halt);
    if (stop.aborted) halt();
    view.begin(this.#schedule, this.#running);
    try {
      this.#act(this.#before);
      for (const name of this.#schedule.names('elsewhere')) this.#reportElsewhere(name);
      for (;;) {
        if (this.#broken !== null) throw this.#broken.error;
        this.#startRuns();
        if (this.#schedule.done) break;
        await this.#waitForChange();
      }
    } catch (error) {
      // No started run may be left running.
      this.#halt();
      await Promise.allSettled(this.#attempts.values());
      throw error;
    } finally {
      stop.removeEventListener('abort', halt);
      view.end();
    }
    return this.#schedule;
  }

  #halt(): void {
    this.#schedule.halt();
    this.#stopRuns.abort();
  }

  /** Starts runs in order, but lets smaller runs pass one that lacks room. */
  #startRuns(): void {
    const limit = this.options.maxParallel ?? Number.POSITIVE_INFINITY;
    for (const { name } of this.#schedule.startable()) {
      if (this.#running.size >= limit || !hasRoom(this.services.slots, this.#kinds)) break;
      const job = must(this.#jobs.get(name), name);
      const placement = this.services.slots.tryAcquire(job.processes, job.device, job.bytes);
      if (placement !== null) this.#start(job, placement);
    }
    if (this.#running.size === 0 && this.#schedule.startable().next().done !== true) {
      throw new InternalError('no slot is taken, and yet there is no room for any run');
    }
  }

  #start(job: PlannedJob, placement: Placement): void {
    const running = { job, placement, startedMs: performance.now() };
    this.#schedule.started(job.name);
    this.#running.set(job.name, running);
    this.services.view.report({ kind: 'started', running });
    // The loop raises the stored error. If two attempts end in the same turn, only the first wakes the loop.
    const attempt = this.#attempt(running).catch((error: unknown) => {
      this.#broken ??= { error };
    });
    this.#attempts.set(job.name, attempt);
  }

  async #attempt(running: RunningJob): Promise<void> {
    const { job, placement } = running;
    const { runner, slots, view, world, kill } = this.services;
    let end: AttemptEnd;
    let failure: Failure | null = null;
    try {
      const aside = world.setAsideOutdated(job.config);
      if (aside !== null) {
        view.remark(`${job.name} failed with other settings and starts from scratch; the failed run is now ${aside}`);
      }
      const result = await runner.runWithoutParents(job.config, { ...placement, stop: this.#stopRuns.signal, kill });
      end = { kind: result.kind === 'interrupted' ? 'interrupted' : 'finished' };
    } catch (error) {
      if (error instanceof RunFailed && this.#wasStopped(job)) end = { kind: 'interrupted' };
      else {
        failure = failureOf(error);
        end = { kind: 'failed', reason: failure.reason, mayRetry: mayRetry(error) };
      }
    }
    slots.release(placement);
    this.#attempts.delete(job.name);
    const isElsewhere = failure !== null && this.#isElsewhere(job);
    if (!isElsewhere) this.#reportEnd(running, end, failure);
    this.#running.delete(job.name);
    if (isElsewhere) return;
    this.#act(this.#schedule.ended(job.name, end));
    if (this.options.failFast && this.#schedule.halted) this.#stopRuns.abort();
  }

  #reportEnd(running: RunningJob, end: AttemptEnd, failure: Failure | null): void {
    const { view } = this.services;
    const seconds = (performance.now() - running.startedMs) / 1000;
    if (failure !== null) view.report({ kind: 'failed', running, failure, seconds });
    else if (end.kind === 'interrupted') view.report({ kind: 'interrupted', running });
    else view.report({ kind: 'finished', running, seconds });
  }

  /** Whether a run did not start because another process had already started it. */
  #isElsewhere(job: PlannedJob): boolean {
    const found = this.services.world.inspect(job.config);
    if (found.kind !== 'elsewhere') return false;
    this.#schedule.claimedElsewhere(job.name, found.holder);
    this.#reportElsewhere(job.name);
    return true;
  }

  /** Whether the worker died because someone killed the run on purpose, according to its directory. */
  #wasStopped(job: PlannedJob): boolean {
    const found = this.services.world.inspect(job.config);
    return found.kind === 'open' && found.interrupted;
  }

  #reportElsewhere(name: string): void {
    this.services.view.report({ kind: 'elsewhere', name, holder: this.#schedule.reason(name) ?? '' });
  }

  #act(notices: readonly Notice[]): void {
    for (const notice of notices) this.services.view.report(notice);
  }

  async #waitForChange(): Promise<void> {
    const elsewhere = this.#schedule.names('elsewhere');
    if (elsewhere.length === 0) {
      await Promise.race(this.#attempts.values());
      return;
    }
    const timer = new AbortController();
    await Promise.race([...this.#attempts.values(), delay(POLL_MS, timer.signal, this.services.stop)]);
    timer.abort();
    const free = new Map<string, RunFolderState>();
    for (const name of elsewhere) {
      const found = this.services.world.inspect(must(this.#jobs.get(name), name).config);
      if (found.kind !== 'elsewhere') free.set(name, found);
    }
    this.#act(this.#schedule.update(free));
  }
}

/** False if a retry cannot help: a wrong config, a limit that was reached, or a bug in editrl. */
function mayRetry(error: unknown): boolean {
  if (error instanceof JudgeLimitError) return false;
  return error instanceof EditrlError && error.exitCode !== 2 && !(error instanceof InternalError);
}

function failureOf(error: unknown): Failure {
  if (error instanceof RunFailed) {
    const { lastLines, advice } = error.failure;
    return { reason: error.reason, lastLines, advice };
  }
  if (error instanceof EditrlError) return { reason: error.toText(), lastLines: [], advice: null };
  return { reason: error instanceof Error ? error.message : String(error), lastLines: [], advice: null };
}

/** Waits until the time is over or one of the signals aborts. */
async function delay(milliseconds: number, ...signals: readonly AbortSignal[]): Promise<void> {
  if (signals.some((signal) => signal.aborted)) return;
  await new Promise<void>((resolve) => {
    const finish = (): void => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    for (const signal of signals) signal.addEventListener('abort', finish);
  });
}
