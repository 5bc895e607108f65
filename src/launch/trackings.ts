/** Tracks the runs of a launcher: one tracking per attempt, which may still be at work when the next one has begun. */
import { EditrlError } from '../core/errors.js';
import { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import type { RunSettings } from '../config/schema/run.js';
import { RunTracking } from '../run/track/tracking.js';
import type { Say } from '../run/track/shared.js';
import { noteWandbId, wandbIdOfEnvironment } from '../run/track/wandb/environment.js';

export interface TrackingsOptions {
  /** Receives lines after their run has ended. */
  readonly say: Say;
  /** Ends all of them at once. */
  readonly kill: AbortSignal | undefined;
}

export class RunTrackings {
  /** By run_name. A tracking whose run has ended stays until everything is passed on. */
  readonly #of = new Map<string, RunTracking>();

  /** The run that the user asked for, and its id in W&B if WANDB_RUN_ID gives one. */
  #asked: { readonly run: string; readonly wandbId: string | null } | null = null;

  constructor(private readonly options: TrackingsOptions) {
    const giveUp = (): void => {
      for (const tracking of this.#of.values()) void tracking.giveUp();
    };
    options.kill?.addEventListener('abort', giveUp, { once: true });
  }

  /**
   * Sets the run that the user asked for: WANDB_RUN_ID means that run, and none of its parents. Raises ConfigError for an id that W&B does not
   * accept.
   */
  setRequestedRun({ run_name, track, launch }: RunSettings): void {
    const wandbId = wandbIdOfEnvironment(process.env);
    this.#asked = { run: run_name, wandbId };
    // Another trainer's program connects to W&B on its own.
    if (wandbId === null || track.wandb !== null || launch.command !== null) return;
    this.options.say(
      'warning: WANDB_RUN_ID is set, but nothing goes to W&B: --set track.wandb.project=NAME sends it there',
      'warn',
    );
  }

  /** For an attempt that is about to start. */
  attempt(settings: RunSettings): TrackedAttempt {
    const wandbId = settings.run_name === this.#asked?.run ? this.#asked.wandbId : null;
    return new TrackedAttempt(settings, wandbId, this.#of, this.options);
  }

  /** Waits for all of them: for W&B at most its own limit, for the Hub as long as its uploads retry. */
  async close(): Promise<void> {
    await Promise.all([...this.#of.values()].map((tracking) => tracking.end()));
  }
}

/** One attempt at a run, as its tracking sees it. */
export class TrackedAttempt {
  /** The run's processes. */
  workers: readonly { readonly pid: number }[] = [];
  readonly #stop = new AbortController();
  #tracking: RunTracking | null = null;
  #say: Say;

  constructor(
    private readonly settings: RunSettings,
    private readonly wandbId: string | null,
    private readonly others: Map<string, RunTracking>,
    private readonly options: TrackingsOptions,
  ) {
    this.#say = options.say;
  }

  /** Aborted when somebody asks for the run's end on a tracking page. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** The attempt has claimed its run. `say` reaches the run's own log until it ends. Problems with tracking are reported, and end nothing. */
  begin(say: Say): void {
    try {
      this.#begin(say);
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      say(`the run is not tracked: ${error.toText()}`, 'warn');
    }
  }

  #begin(say: Say): void {
    const { run_name, track } = this.settings;
    const paths = RunPaths.of(this.settings);
    const record = readRecord(paths);
    if (record === null) return;
    this.#say = say;
    if (this.wandbId !== null) noteWandbId(paths, this.wandbId);
    const earlier = this.others.get(run_name);
    const tracking = new RunTracking({
      paths,
      record,
      track,
      pids: () => this.workers.map(({ pid }) => pid),
      say: (line, level) => this.#say(line, level),
      onStop: () => this.#stop.abort(),
      // This attempt passes on what an earlier one has not.
      ...(earlier === undefined ? {} : { after: earlier.giveUp() }),
    });
    this.#tracking = tracking;
    this.others.set(run_name, tracking);
  }

  /** It has ended, and its state says how. The rest is passed on in the background. */
  end(): void {
    this.#say = this.options.say;
    const [tracking, { run_name }] = [this.#tracking, this.settings];
    if (tracking === null) return;
    void tracking.end().then(() => {
      if (this.others.get(run_name) === tracking) this.others.delete(run_name);
    });
  }
}
