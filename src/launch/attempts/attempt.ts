/** One attempt at a claimed run, and what all attempts of one launcher share. */
import type { LoadedConfig } from '../../config/load.js';
import type { RunHandle } from '../../run/claim/claim.js';
import type { RunLog } from '../../run/logs.js';
import type { RunSettings } from '../../config/schema/run.js';
import type { View } from '../live/view.js';
import type { Devices, Placement } from '../machine/devices.js';
import type { PlacedParts } from '../machine/placement.js';
import type { HubModels } from '../models/hub.js';
import type { Guardian } from '../processes/guardian.js';
import type { Started } from '../processes/supervise.js';
import type { RunServerPool } from '../servers/run_server_pool.js';
import type { RunTrackings } from '../trackings.js';

/** What all attempts of one launcher share. */
export interface AttemptServices {
  readonly guardian: Guardian;
  readonly servers: RunServerPool;
  readonly trackings: RunTrackings;
  readonly hub: HubModels;
  readonly view: View;
  /** The command line, for the run's record. */
  readonly command: readonly string[];
  /** Asks every run to checkpoint and end. */
  readonly stop: AbortSignal;
  /** Ends every run at once. */
  readonly kill?: AbortSignal;
  readonly devices: () => Devices;
  readonly say: (line: string) => void;
  /** Called with each line that a run's own worker printed or its log got from this process. */
  readonly onWorkerLine: (run: string, line: string) => void;
  /** Called when an attempt has claimed a run. */
  readonly onClaimed: (settings: RunSettings) => void;
}

/** One attempt at a claimed run. */
export interface Attempt {
  readonly config: LoadedConfig;
  readonly handle: RunHandle;
  /** Rank 0's log, for this process's own messages. */
  readonly log: RunLog;
  readonly placement: Placement;
  /** Number of processes from `launch.processes`, with `auto` resolved. */
  readonly processes: number;
  /** Which GPU computes each part; null if the settings do not say. */
  readonly placed: PlacedParts | null;
  /** Asks this run to checkpoint and end. */
  readonly stop: AbortSignal;
  /** Ends this run at once. */
  readonly kill: AbortSignal;
  readonly onStarted: (started: Started) => void;
}
