/** Passes on what a run's tracking has not sent: the same as while it runs, from the same files, but started by hand. */
import { EditrlError, must, UsageError } from '../core/errors.js';
import type { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { recordedSettings } from '../run/recorded_config.js';
import type { WandbSettings } from '../schema/track.js';
import { track as trackSchema } from '../schema/track.js';
import { lockTracking } from './run_tracking.js';
import type { Say } from './say.js';
import type { ForwardPace } from './wandb/forwarder.js';
import type { WandbRetryPolicy } from './wandb/client.js';
import type { ForwardResult } from './wandb/forward.js';

/** How long to wait for a server: somebody is waiting at a terminal. */
const FINISH_MS = 60_000;

export interface SyncOptions {
  /** Where to send instead of the run's settings; null to use those. */
  readonly wandb: Pick<WandbSettings, 'project' | 'entity'> | null;
  readonly say: Say;
  readonly env?: NodeJS.ProcessEnv;
  readonly pace?: ForwardPace;
  readonly retryPolicy?: WandbRetryPolicy;
  readonly finishMs?: number;
}

/** How much has been sent where; null for destinations that are not used. */
export interface SyncResult {
  readonly wandb: ForwardResult | null;
  /** Rows of the event file. */
  readonly tensorboard: number | null;
  /** Number of branches written. */
  readonly hub: number | null;
}

/**
 * Raises UsageError for a run without any tracking, InUseError while another process passes it on, ConfigError for a wrong environment, EndpointError
 * when a server refuses or does not answer, RunError for a run directory of another version.
 */
export async function syncRun(paths: RunPaths, options: SyncOptions): Promise<SyncResult> {
  const { say, env = process.env, pace, retryPolicy, finishMs = FINISH_MS } = options;
  const record = must(readRecord(paths), `the record of ${paths.runName}`);
  const { track } = recordedSettings(record.settings);
  const wandb = options.wandb === null ? track.wandb : wandbSettings(track.wandb, options.wandb);
  if (wandb === null && !track.tensorboard && track.push_to_hub === null) {
    throw new UsageError(
      `${paths.runName} is tracked nowhere: its config has no track.wandb, track.tensorboard or track.push_to_hub`,
      {
        next: 'Say --project NAME to send it to W&B.',
      },
    );
  }
  const lock = lockTracking(paths);
  const ending = AbortSignal.abort();
  const giveUp = new AbortController().signal;
  try {
    const failures: Error[] = [];
    // If one destination refuses, the others still get everything.
    const attempt = async <T>(asked: boolean, work: () => Promise<T>): Promise<T | null> => {
      if (!asked) return null;
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof EditrlError)) throw error;
        failures.push(error);
        return null;
      }
    };
    const tensorboard = await attempt(track.tensorboard, async () => {
      const { writeTensorboard } = await import('./tensorboard/forward.js');
      return writeTensorboard({ paths, record, env, ending });
    });
    const repository = track.push_to_hub;
    const hub = await attempt(repository !== null, async () => {
      const { publishCheckpoints } = await import('./hub/forward.js');
      return publishCheckpoints({ paths, settings: must(repository, 'a repository'), ending, giveUp, say });
    });
    const forwarded = await attempt(wandb !== null, async () => {
      const [{ wandbEnvironment }, { forwardToWandb }] = await Promise.all([
        import('./wandb/environment.js'),
        import('./wandb/forward.js'),
      ]);
      // As with W&B's own `wandb sync`, WANDB_MODE says how a run tracks, not what this command does.
      const environment = wandbEnvironment(env);
      return forwardToWandb({
        ...{ paths, record, settings: must(wandb, 'a project'), environment, env, ending, giveUp, finishMs, say },
        ...(pace === undefined ? {} : { pace }),
        ...(retryPolicy === undefined ? {} : { retryPolicy }),
      });
    });
    const [first, ...others] = failures;
    for (const error of others) say(error.message, 'warn');
    if (failures.length > 0) throw first;
    return { wandb: forwarded, tensorboard, hub };
  } finally {
    lock.release();
  }
}

/** The run's own settings with another destination, or defaults if it has none. Raises UsageError for an invalid project. */
function wandbSettings(own: WandbSettings | null, place: Pick<WandbSettings, 'project' | 'entity'>): WandbSettings {
  const parsed = trackSchema.safeParse({ wandb: { ...own, ...place } });
  if (parsed.success && parsed.data.wandb !== null) return parsed.data.wandb;
  throw new UsageError(`--project: '${place.project}' cannot name a W&B project`, {
    next: 'It has 1 to 128 letters, and none of / \\ # ? % :',
  });
}
