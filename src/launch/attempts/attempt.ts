/** One attempt at a claimed run, and the services that all attempts of a launcher share. */
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

/** Services that all attempts of one launcher share. */
export interface AttemptServices {
  readonly guardian: Guardian;
  readonly servers: RunServerPool;
  readonly trackings: RunTrackings;
  readonly hub: HubModels;
  readonly view: View;
  /** This process's command line, for the run's record. */
  readonly command: readonly string[];
  /** Requests that every run save a checkpoint and stop. */
  readonly stop: AbortSignal;
  /** Kills every run. */
  readonly kill?: AbortSignal;
  readonly devices: () => Devices;
  readonly say: (line: string) => void;
  /** Called with each line that a worker prints or that this process adds to the run's log. */
  readonly onWorkerLine: (run: string, line: string) => void;
  /** Called when an attempt has claimed a run. */
  readonly onClaimed: (settings: RunSettings) => void;
}

/** One attempt at a claimed run. */
export interface Attempt {
  readonly config: LoadedConfig;
  readonly handle: RunHandle;
  /** Rank 0's log, which also takes this process's messages. */
  readonly log: RunLog;
  readonly placement: Placement;
  /** Number of processes from `launch.processes`, with `auto` resolved. */
  readonly processes: number;
  /** The GPU of each part. Null without `launch.placement`. */
  readonly placed: PlacedParts | null;
  /** Requests that this run save a checkpoint and stop. */
  readonly stop: AbortSignal;
  /** Kills this run. */
  readonly kill: AbortSignal;
  readonly onStarted: (started: Started) => void;
}
