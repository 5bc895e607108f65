/**
 * Sends a run to W&B, an event file and the Hub, during the run and later for `editrl sync`.
 * During a run, this happens in the launcher's process, so that training spends no time on it. A failure here is
 * reported and never ends the run.
 */
import { EditrlError, InUseError, must, UsageError } from '../../core/errors.js';
import type { Clock } from '../../core/clock.js';
import { realLockWorld, ownerStatus, takeLock, type FileLock } from '../../core/lock.js';
import type { RunPaths } from '../paths.js';
import { readRecord, type RunRecord } from '../record.js';
import { recordedSettings } from '../recorded_config.js';
import { track as trackSchema, type TrackSettings, type WandbSettings } from '../../config/schema/track.js';
import type { HubOptions } from './hub/forward.js';
import type { Say } from './shared.js';
import { sampleSystem } from './system.js';
import type { WandbRetryPolicy } from './wandb/client.js';
import type { ForwardPace, ForwardResult } from './wandb/forward.js';

/** Milliseconds to wait for a server that does not answer, after a run has ended and during `editrl sync`. */
const FINISH_MS = { run: 30_000, sync: 60_000 };

interface SinkOptions {
  readonly paths: RunPaths;
  readonly say: Say;
  readonly env?: NodeJS.ProcessEnv | undefined;
  readonly clock?: Clock | undefined;
  readonly pace?: ForwardPace | undefined;
  readonly retryPolicy?: WandbRetryPolicy | undefined;
  readonly publish?: HubOptions['publish'];
  readonly finishMs?: number | undefined;
}

export interface TrackingOptions extends SinkOptions {
  readonly record: RunRecord;
  /** A promise to wait for first. Default: none. */
  readonly after?: Promise<void>;
  readonly track: TrackSettings;
  /** The run's processes. */
  readonly pids: () => readonly number[];
  /** Called when someone stops the run on W&B's page. */
  readonly onStop: () => void;
}

export interface SyncOptions extends SinkOptions {
  /** A destination that overrides the run's settings. Null uses the settings. */
  readonly wandb: Pick<WandbSettings, 'project' | 'entity'> | null;
}

/** The amount sent to each destination. Null for destinations that are not used. */
export interface SyncResult {
  readonly wandb: ForwardResult | null;
  /** Number of rows in the event file. */
  readonly tensorboard: number | null;
  /** Number of branches written. */
  readonly hub: number | null;
}

/** When forwarding has to end. */
interface Ends {
  readonly ending: AbortSignal;
  readonly giveUp: AbortSignal;
}

type Sinks = { readonly [K in keyof SyncResult]: (() => Promise<SyncResult[K]>) | null };

/** The senders of all destinations in the settings. Modules are loaded lazily. */
function sinksOf(
  track: TrackSettings,
  options: SinkOptions & Pick<TrackingOptions, 'record'> & Partial<Pick<TrackingOptions, 'pids' | 'onStop'>>,
  ends: Ends & { readonly finishMs: number },
): Sinks {
  const { wandb, tensorboard, push_to_hub: repository } = track;
  return {
    tensorboard: tensorboard
      ? async () => {
          const { writeTensorboard } = await import('./tensorboard/forward.js');
          return writeTensorboard({ ...options, ...ends, everyMs: options.pace?.everyMs });
        }
      : null,
    hub:
      repository === null
        ? null
        : async () => {
            const { publishCheckpoints } = await import('./hub/forward.js');
            return publishCheckpoints({ ...options, ...ends, settings: repository });
          },
    wandb:
      wandb === null
        ? null
        : async () => {
            const [{ wandbEnvironment }, { forwardToWandb }] = await Promise.all([
              import('./wandb/environment.js'),
              import('./wandb/forward.js'),
            ]);
            const environment = wandbEnvironment(options.env);
            return forwardToWandb({ ...options, ...ends, settings: wandb, environment });
          },
  };
}

/** Tracks one attempt of a run. */
export class RunTracking {
  readonly #ending = new AbortController();
  readonly #giveUp = new AbortController();
  readonly #done: Promise<void>;

  /** Starts at once if the settings enable tracking. */
  constructor(private readonly options: TrackingOptions) {
    const { wandb, tensorboard, push_to_hub: repository } = options.track;
    const isTracked = wandb !== null || tensorboard || repository !== null;
    this.#done = isTracked ? this.#follow() : Promise.resolve();
  }

  /** Call when the attempt has ended. Content that is already in its files is still sent. Never rejects. */
  end(): Promise<void> {
    this.#ending.abort();
    return this.#done;
  }

  /** Ends at once. Never rejects. */
  giveUp(): Promise<void> {
    this.#ending.abort();
    this.#giveUp.abort();
    return this.#done;
  }

  async #follow(): Promise<void> {
    const { paths, track, after, finishMs = FINISH_MS.run } = this.options;
    let lock: FileLock | null = null;
    await after;
    try {
      lock = lockTracking(paths);
      lock.keepAlive({ onLost: () => void this.giveUp(), onRefused: (error) => this.#report(error) });
      const ends = { ending: this.#ending.signal, giveUp: this.#giveUp.signal, finishMs };
      const { wandb, tensorboard, hub } = sinksOf(track, this.options, ends);
      const tracked = [wandb === null ? null : () => this.#wandb(wandb), tensorboard, hub];
      await Promise.all(tracked.flatMap((sink) => (sink === null ? [] : [this.#reported(sink)])));
    } catch (error) {
      this.#report(error);
    } finally {
      try {
        lock?.release();
      } catch (error) {
        this.#report(error);
      }
    }
  }

  /**
   * Samples the machine's load for W&B's charts and forwards everything, unless WANDB_MODE leaves that to `editrl
   * sync`.
   */
  async #wandb(forward: () => Promise<unknown>): Promise<void> {
    const { paths, env, pids, say, clock, pace } = this.options;
    const { wandbEnvironment } = await import('./wandb/environment.js');
    const { mode } = wandbEnvironment(env);
    if (mode === 'disabled') return;
    const sampling = sampleSystem({ paths, pids, clock, everyMs: pace?.everyMs }, this.#ending.signal);
    const sampled = this.#reported(() => sampling);
    if (mode === 'online') await forward();
    else {
      const later = `\`editrl sync ${paths.runName}\` uploads it later`;
      say(`W&B: WANDB_MODE is offline. The data stays in ${paths.dir}. ${later}.`, 'info');
    }
    await sampled;
  }

  async #reported(sink: () => Promise<unknown>): Promise<void> {
    try {
      await sink();
    } catch (error) {
      this.#report(error);
    }
  }

  /** Reports a problem. Tracking never ends a run, because the run directory contains everything. */
  #report(error: unknown): void {
    const text =
      error instanceof EditrlError
        ? error.toText()
        : `${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
    this.options.say(`${text}\n  The run continues, and its metrics stay in its folder.`, 'warn');
  }
}

/**
 * Sends everything that a run's tracking has not sent yet. Like W&B's own `wandb sync`, it ignores WANDB_MODE.
 * Raises UsageError for a run without tracking, InUseError while another process sends it, and ConfigError for a wrong
 * environment. Raises EndpointError when a server refuses or does not answer, and RunError for a run directory of
 * another version.
 */
export async function syncRun(paths: RunPaths, options: Omit<SyncOptions, 'paths'>): Promise<SyncResult> {
  const { say, finishMs = FINISH_MS.sync } = options;
  const record = must(readRecord(paths), `the record of ${paths.runName}`);
  const { track: recorded } = recordedSettings(record.settings);
  const wandb = options.wandb === null ? recorded.wandb : wandbSettings(recorded.wandb, options.wandb);
  const track = { ...recorded, wandb };
  if (wandb === null && !track.tensorboard && track.push_to_hub === null) {
    throw new UsageError(
      `${paths.runName} has no tracking: its config sets none of track.wandb, track.tensorboard and track.push_to_hub`,
      { next: 'Add --project NAME to upload it to W&B.' },
    );
  }
  const lock = lockTracking(paths);
  try {
    const ends = { ending: AbortSignal.abort(), giveUp: new AbortController().signal, finishMs };
    const sinks = sinksOf(track, { ...options, paths, record }, ends);
    const failures: Error[] = [];
    // If one destination refuses, the others still get everything.
    const attempt = async <T>(sink: (() => Promise<T>) | null): Promise<T | null> => {
      try {
        return sink === null ? null : await sink();
      } catch (error) {
        if (!(error instanceof EditrlError)) throw error;
        failures.push(error);
        return null;
      }
    };
    const tensorboard = await attempt(sinks.tensorboard);
    const hub = await attempt(sinks.hub);
    const forwarded = await attempt(sinks.wandb);
    const [first, ...others] = failures;
    for (const error of others) say(error.message, 'warn');
    if (failures.length > 0) throw first;
    return { wandb: forwarded, tensorboard, hub };
  } finally {
    lock.release();
  }
}

/** The run's own settings, or defaults, with another destination. Raises UsageError for an invalid project. */
function wandbSettings(own: WandbSettings | null, place: Pick<WandbSettings, 'project' | 'entity'>): WandbSettings {
  const parsed = trackSchema.safeParse({ wandb: { ...own, ...place } });
  if (parsed.success && parsed.data.wandb !== null) return parsed.data.wandb;
  throw new UsageError(`--project: '${place.project}' is not a valid W&B project name`, {
    next: 'Use 1 to 128 characters without / \\ # ? % :',
  });
}

/** Allows one process at a time to send a run. Raises InUseError with the other process. */
export function lockTracking(paths: RunPaths): FileLock {
  const world = realLockWorld();
  return takeLock(
    paths.trackLock,
    ({ owner }) => {
      if (owner !== null && ownerStatus(owner, world) === 'gone') return;
      const by = owner === null ? 'another process' : `process ${owner.pid} on ${owner.host}`;
      throw new InUseError(`${by} is already uploading this run`, {
        where: paths.trackLock,
        next: 'Wait until it ends, or stop it.',
      });
    },
    world,
  );
}
