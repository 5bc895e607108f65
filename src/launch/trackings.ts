/**
 * Tracks the runs of a launcher with one tracking per attempt. A tracking may still be uploading after the next attempt
 * has started.
 */
import { EditrlError } from '../core/errors.js';
import { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import type { RunSettings } from '../config/schema/run.js';
import { RunTracking } from '../run/track/tracking.js';
import type { Say } from '../run/track/shared.js';
import { recordWandbId, wandbIdOfEnvironment } from '../run/track/wandb/environment.js';

export interface TrackingsOptions {
  /** Receives lines after their run has ended. */
  readonly say: Say;
  /** Ends all uploads at once. */
  readonly kill: AbortSignal | undefined;
}

export class RunTrackings {
  /** By run_name. A tracking stays until everything is uploaded, even after its run has ended. */
  readonly #of = new Map<string, RunTracking>();

  /** The run that the user requested, and its W&B id from WANDB_RUN_ID. */
  #requested: { readonly run: string; readonly wandbId: string | null } | null = null;

  constructor(private readonly options: TrackingsOptions) {
    const giveUp = (): void => {
      for (const tracking of this.#of.values()) void tracking.giveUp();
    };
    options.kill?.addEventListener('abort', giveUp, { once: true });
  }

  /**
   * Sets the run that the user requested. WANDB_RUN_ID is the id of that run and not of its parents. Raises ConfigError for an id that W&B does not
   * accept.
   */
  setRequestedRun({ run_name, track, launch }: RunSettings): void {
    const wandbId = wandbIdOfEnvironment(process.env);
    this.#requested = { run: run_name, wandbId };
    // A foreign trainer connects to W&B on its own.
    if (wandbId === null || track.wandb !== null || launch.command !== null) return;
    this.options.say(
      'warning: WANDB_RUN_ID is set, but W&B is off; --set track.wandb.project=NAME turns it on',
      'warn',
    );
  }

  /** The tracking of an attempt that is about to start. */
  attempt(settings: RunSettings): TrackedAttempt {
    const wandbId = settings.run_name === this.#requested?.run ? this.#requested.wandbId : null;
    return new TrackedAttempt(settings, wandbId, this.#of, this.options);
  }

  /** Waits for all of them: for W&B up to its time limit, for the Hub as long as its uploads retry. */
  async close(): Promise<void> {
    await Promise.all([...this.#of.values()].map((tracking) => tracking.end()));
  }
}

/** The tracking of one attempt. */
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

  /** Aborted when someone stops the run on a tracking page. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** Call when the attempt has claimed its run. `say` writes to the run's log. Problems with tracking are reported and stop nothing. */
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
    if (this.wandbId !== null) recordWandbId(paths, this.wandbId);
    const earlier = this.others.get(run_name);
    const tracking = new RunTracking({
      paths,
      record,
      track,
      pids: () => this.workers.map(({ pid }) => pid),
      say: (line, level) => this.#say(line, level),
      onStop: () => this.#stop.abort(),
      // This attempt uploads the rest of an earlier one.
      ...(earlier === undefined ? {} : { after: earlier.giveUp() }),
    });
    this.#tracking = tracking;
    this.others.set(run_name, tracking);
  }

  /** Call when the attempt has ended and its state is recorded. The rest is uploaded in the background. */
  end(): void {
    this.#say = this.options.say;
    const [tracking, { run_name }] = [this.#tracking, this.settings];
    if (tracking === null) return;
    void tracking.end().then(() => {
      if (this.others.get(run_name) === tracking) this.others.delete(run_name);
    });
  }
}
