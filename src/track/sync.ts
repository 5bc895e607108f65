/** Passes on what a run's tracking has left: the same as while it goes on, from the same files, begun by hand. */
import { must, UsageError } from '../core/errors.js';
import type { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { recordedSettings } from '../run/recorded_config.js';
import type { WandbSettings } from '../schema/track.js';
import { track as trackSchema } from '../schema/track.js';
import { lockTracking } from './run_tracking.js';
import type { Say } from './say.js';
import type { Pace } from './wandb/forwarder.js';
import type { Patience } from './wandb/client.js';
import type { Forwarded } from './wandb/forward.js';

/** Somebody waits at a terminal. */
const FINISH_MS = 60_000;

export interface SyncOptions {
  /** Where to send to in place of what the run's settings say; null for these. */
  readonly wandb: Pick<WandbSettings, 'project' | 'entity'> | null;
  readonly say: Say;
  readonly env?: NodeJS.ProcessEnv;
  readonly pace?: Pace;
  readonly patience?: Patience;
  readonly finishMs?: number;
}

/** What is where in the end; null for what the run is not passed on to. */
export interface Synced {
  readonly wandb: Forwarded | null;
  /** Rows of the event file. */
  readonly tensorboard: number | null;
  /** Branches that were written. */
  readonly hub: number | null;
}

/**
 * Raises UsageError for a run that is tracked nowhere, InUseError while another process passes it on, ConfigError for a wrong environment,
 * EndpointError where a server refuses or does not answer, RunError for a run directory of another version.
 */
export async function syncRun(paths: RunPaths, options: SyncOptions): Promise<Synced> {
  const { say, env = process.env, pace, patience, finishMs = FINISH_MS } = options;
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
    let forwarded: Forwarded | null = null;
    if (wandb !== null) {
      const [{ wandbEnvironment }, { forwardToWandb }] = await Promise.all([
        import('./wandb/environment.js'),
        import('./wandb/forward.js'),
      ]);
      forwarded = await forwardToWandb({
        ...{ paths, record, settings: wandb, environment: wandbEnvironment(env), ending, giveUp, finishMs, say },
        ...(pace === undefined ? {} : { pace }),
        ...(patience === undefined ? {} : { patience }),
      });
    }
    let tensorboard: number | null = null;
    if (track.tensorboard) {
      const { writeTensorboard } = await import('./tensorboard/forward.js');
      tensorboard = await writeTensorboard({ paths, record, ending });
    }
    let hub: number | null = null;
    if (track.push_to_hub !== null) {
      const { publishCheckpoints } = await import('./hub/forward.js');
      hub = await publishCheckpoints({ paths, settings: track.push_to_hub, ending, giveUp, say });
    }
    return { wandb: forwarded, tensorboard, hub };
  } finally {
    lock.release();
  }
}

/** As the run's own settings say but for the place, or with defaults where it has none. Raises UsageError for a project that cannot be. */
function wandbSettings(own: WandbSettings | null, place: Pick<WandbSettings, 'project' | 'entity'>): WandbSettings {
  const parsed = trackSchema.safeParse({ wandb: { ...own, ...place } });
  if (parsed.success && parsed.data.wandb !== null) return parsed.data.wandb;
  throw new UsageError(`--project: '${place.project}' cannot name a W&B project`, {
    next: 'It has 1 to 128 letters, and none of / \\ # ? % :',
  });
}
