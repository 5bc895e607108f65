/** Carries out a schedule: starts runs when there is room, reports their outcomes, and handles the sweep's stop. */
import type { LoadedConfig } from '../../config/load.js';
import { EditrlError, InternalError, JudgeLimitError, must } from '../../core/errors.js';
import type { DeviceKind, Placement } from '../machine/devices.js';
import { RunFailed } from '../processes/failure.js';
import { Schedule, type AttemptEnd, type Notice, type RunFolderState } from './schedule.js';
import type { PlannedJob, SizedJob } from './plan.js';

/** Interval between checks of runs that other processes hold. */
const POLL_MS = 500;

/** Starts runs: the Launcher, or a fake one. */
export interface Runner {
  runWithoutParents(
    config: LoadedConfig,
    placement: Placement & { readonly stop: AbortSignal; readonly kill: AbortSignal },
  ): Promise<{ readonly kind: 'finished' | 'already_finished' | 'interrupted' }>;
}

/** Assigns room: DeviceSlots, or a fake. */
export interface Slots {
  /** Number of free slots. */
  free(kind: DeviceKind): number;
  /** `bytes`: what it takes of the machine's memory. */
  tryAcquire(processes: number, kind: DeviceKind, bytes: number): Placement | null;
  release(placement: Placement): void;
}

/** What a sweep reads from run directories and writes into them. */
export interface RunWorld {
  inspect(config: LoadedConfig): RunFolderState;
  /** Sets aside the folder of a run that failed with other settings; null if it has no such folder. */
  setAsideOutdated(config: LoadedConfig): string | null;
}

/** A run under way. */
export interface RunningJob {
  readonly job: PlannedJob;
  readonly placement: Placement;
  readonly startedMs: number;
}

/** Why an attempt failed, for people. */
export interface Failure {
  readonly reason: string;
  /** The last lines of the worker's log. */
  readonly lastLines: readonly string[];
  /** What to do about it; null if unknown, or if the reason includes it. */
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
 * Shows the sweep. `begin` comes before any event, with the schedule and the runs under way, which stay live; no event comes after `end`. Remarks may
 * come before `begin` and after `end`.
 */
export interface SweepView {
  begin(schedule: Schedule, running: ReadonlyMap<string, RunningJob>): void;
  tell(event: SweepEvent): void;
  /** A message that belongs to no run. */
  remark(sentence: string): void;
  /** Harmless if called again. */
  end(): void;
}

export interface SweepOptions {
  readonly jobs: readonly SizedJob[];
  readonly retries: number;
  readonly failFast: boolean;
  /** Maximum number of runs at once; null means as many as fit. */
  readonly maxParallel: number | null;
}

export interface SweepServices {
  readonly runner: Runner;
  readonly slots: Slots;
  readonly world: RunWorld;
  readonly view: SweepView;
  /** When aborted, runs checkpoint and stop, and nothing more starts. */
  readonly stop: AbortSignal;
  /** When aborted, runs end at once; the reason is a text for their states. `stop` is aborted, too. */
  readonly kill: AbortSignal;
}

/** Runs a sweep to its end and returns its schedule, which says what became of each run. */
export async function runSweep(options: SweepOptions, services: SweepServices): Promise<Schedule> {
  return new Sweep(options, services).run();
}

/** The schedule as it stands before anything is started. */
export function openSchedule(
  options: Omit<SweepOptions, 'maxParallel' | 'jobs'> & { readonly jobs: readonly PlannedJob[] },
  world: RunWorld,
): { schedule: Schedule; notices: Notice[] } {
  const schedule = new Schedule(options.jobs, options);
  const notices = schedule.found(new Map(options.jobs.map((job) => [job.name, world.inspect(job.config)])));
  return { schedule, notices };
}

/** Whether a slot of one of these kinds is free; if not, no run needs to be considered. */
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
  /** An error in the sweep itself, as opposed to in a run. */
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
      // Nothing that was started may be left running.
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

  /** In order, but a run without enough room lets smaller ones go first. */
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
    this.services.view.tell({ kind: 'started', running });
    // Kept for the loop to raise: if two attempts end in the same turn, only the first wakes it.
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
    if (failure !== null) view.tell({ kind: 'failed', running, failure, seconds });
    else if (end.kind === 'interrupted') view.tell({ kind: 'interrupted', running });
    else view.tell({ kind: 'finished', running, seconds });
  }

  /** Whether a run did not start because another process was first. */
  #isElsewhere(job: PlannedJob): boolean {
    const found = this.services.world.inspect(job.config);
    if (found.kind !== 'elsewhere') return false;
    this.#schedule.heldElsewhere(job.name, found.holder);
    this.#reportElsewhere(job.name);
    return true;
  }

  /** Whether its worker died because somebody killed the run on purpose, as its directory then says. */
  #wasStopped(job: PlannedJob): boolean {
    const found = this.services.world.inspect(job.config);
    return found.kind === 'open' && found.interrupted;
  }

  #reportElsewhere(name: string): void {
    this.services.view.tell({ kind: 'elsewhere', name, holder: this.#schedule.reason(name) ?? '' });
  }

  #act(notices: readonly Notice[]): void {
    for (const notice of notices) this.services.view.tell(notice);
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
    this.#act(this.#schedule.found(free));
  }
}

/** False for what a retry cannot change: a wrong config, a limit that is reached, or a bug in this program. */
function mayRetry(error: unknown): boolean {
  if (error instanceof JudgeLimitError) return false;
  return error instanceof EditrlError && error.exitCode !== 2 && !(error instanceof InternalError);
}

function failureOf(error: unknown): Failure {
  if (error instanceof RunFailed) return { reason: error.reason, lastLines: error.lastLines, advice: error.advice };
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
