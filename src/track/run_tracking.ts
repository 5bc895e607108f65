/**
 * Tracks a run in the launcher's process while it runs, so that training spends no time on it. A failure here is reported and never ends a run.
 * `editrl sync` can send later whatever is missing.
 */
import { systemClock, type Clock } from '../core/clock.js';
import { EditrlError, InUseError } from '../core/errors.js';
import { realLockWorld, ownerStatus, takeLock, type FileLock } from '../core/lock.js';
import type { RunPaths } from '../run/paths.js';
import type { RunRecord } from '../run/record.js';
import type { HubPublishing, TrackSettings } from '../schema/track.js';
import type { HubOptions } from './hub/forward.js';
import type { Say } from './say.js';
import { sampleSystem } from './system.js';
import type { ForwardPace } from './wandb/forwarder.js';
import type { WandbRetryPolicy } from './wandb/client.js';

/** How long to wait for a server that does not answer after its run has ended. */
const FINISH_MS = 30_000;

export interface TrackingOptions {
  readonly paths: RunPaths;
  readonly record: RunRecord;
  /** What has to end first; default: nothing. */
  readonly after?: Promise<void>;
  readonly track: TrackSettings;
  readonly env?: NodeJS.ProcessEnv;
  /** The run's processes. */
  readonly pids: () => readonly number[];
  readonly say: Say;
  /** Called when somebody asks on W&B's page for the run to end. */
  readonly onStop: () => void;
  readonly clock?: Clock;
  readonly pace?: ForwardPace;
  readonly retryPolicy?: WandbRetryPolicy;
  readonly publish?: NonNullable<HubOptions['publish']>;
  readonly finishMs?: number;
}

/** Follows one attempt of a run. */
export class RunTracking {
  readonly #ending = new AbortController();
  readonly #giveUp = new AbortController();
  readonly #done: Promise<void>;

  /** Starts at once if the settings ask for tracking. */
  constructor(private readonly options: TrackingOptions) {
    this.#done = isTracked(options.track) ? this.#follow() : Promise.resolve();
  }

  /** Call when the attempt has ended: what is in its files is still passed on. Never rejects. */
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
    const { paths } = this.options;
    let lock: FileLock | null = null;
    await this.options.after;
    try {
      lock = lockTracking(paths);
      lock.keepAlive({ onLost: () => void this.giveUp(), onRefused: (error) => this.#say(error) });
      await Promise.all(this.#sinks().map((sink) => this.#tell(sink)));
    } catch (error) {
      this.#say(error);
    } finally {
      try {
        lock?.release();
      } catch (error) {
        this.#say(error);
      }
    }
  }

  #sinks(): (() => Promise<unknown>)[] {
    const { track } = this.options;
    const sinks: (() => Promise<unknown>)[] = [];
    if (track.wandb !== null) sinks.push(() => this.#wandb());
    if (track.tensorboard) sinks.push(() => this.#tensorboard());
    if (track.push_to_hub !== null) sinks.push(() => this.#hub(track.push_to_hub));
    return sinks;
  }

  async #wandb(): Promise<void> {
    const {
      paths,
      record,
      track,
      env,
      pids,
      say,
      onStop,
      clock = systemClock,
      pace,
      retryPolicy,
      finishMs,
    } = this.options;
    const settings = track.wandb;
    if (settings === null) return;
    const { wandbEnvironment } = await import('./wandb/environment.js');
    const environment = wandbEnvironment(env);
    if (environment.mode === 'disabled') return;
    const sampling = sampleSystem(
      { paths, pids, clock, ...(pace === undefined ? {} : { everyMs: pace.everyMs }) },
      this.#ending.signal,
    );
    const sampled = this.#tell(() => sampling);
    if (environment.mode === 'offline') {
      say(
        `W&B: WANDB_MODE is offline; the data stay in ${paths.dir}, and \`editrl sync ${paths.runName}\` uploads them`,
        'info',
      );
    }
    if (environment.mode === 'online') {
      const { forwardToWandb } = await import('./wandb/forward.js');
      await forwardToWandb({
        paths,
        record,
        settings,
        environment,
        ...(env === undefined ? {} : { env }),
        ending: this.#ending.signal,
        giveUp: this.#giveUp.signal,
        finishMs: finishMs ?? FINISH_MS,
        say,
        onStop,
        clock,
        ...(pace === undefined ? {} : { pace }),
        ...(retryPolicy === undefined ? {} : { retryPolicy }),
      });
    }
    await sampled;
  }

  async #tensorboard(): Promise<void> {
    const { paths, record, env, clock, pace } = this.options;
    const { writeTensorboard } = await import('./tensorboard/forward.js');
    await writeTensorboard({
      paths,
      record,
      ending: this.#ending.signal,
      ...(env === undefined ? {} : { env }),
      ...(clock === undefined ? {} : { clock }),
      ...(pace === undefined ? {} : { everyMs: pace.everyMs }),
    });
  }

  async #hub(settings: HubPublishing | null): Promise<void> {
    const { paths, say, clock, publish } = this.options;
    if (settings === null) return;
    const { publishCheckpoints } = await import('./hub/forward.js');
    await publishCheckpoints({
      paths,
      settings,
      ending: this.#ending.signal,
      giveUp: this.#giveUp.signal,
      say,
      ...(clock === undefined ? {} : { clock }),
      ...(publish === undefined ? {} : { publish }),
    });
  }

  async #tell(sink: () => Promise<unknown>): Promise<void> {
    try {
      await sink();
    } catch (error) {
      this.#say(error);
    }
  }

  /** Tracking never ends a run: problems are reported, and the run directory has everything. */
  #say(error: unknown): void {
    const text =
      error instanceof EditrlError
        ? error.toText()
        : `${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
    this.options.say(`${text}\n  The run goes on; what it measures stays in its folder.`, 'warn');
  }
}

function isTracked({ wandb, tensorboard, push_to_hub }: TrackSettings): boolean {
  return wandb !== null || tensorboard || push_to_hub !== null;
}

/** Only one process at a time passes a run on. Raises InUseError naming that process. */
export function lockTracking(paths: RunPaths): FileLock {
  const world = realLockWorld();
  return takeLock(
    paths.trackLock,
    ({ owner }) => {
      if (owner !== null && ownerStatus(owner, world) === 'gone') return;
      const by = owner === null ? 'another process' : `process ${owner.pid} on ${owner.host}`;
      throw new InUseError(`${by} forwards this run`, {
        where: paths.trackLock,
        next: 'Wait until it has ended, or stop it.',
      });
    },
    world,
  );
}
