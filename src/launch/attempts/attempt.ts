/** The inputs of an attempt at a run, and its entry in the run's record. */
import { createRequire } from 'node:module';
import type { LoadedConfig } from '../../config/load.js';
import { dependencies } from '../../config/models.js';
import { ffmpegVersion } from '../../data/video/ffmpeg.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import type { RunSettings } from '../../schema/run.js';
import type { View } from '../live/view.js';
import type { Devices, Placement } from '../machine/devices.js';
import type { PlacedParts } from '../machine/placement.js';
import type { HubModels } from '../models/hub.js';
import type { Guardian } from '../processes/guardian.js';
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
  /** Called with each line that a run's own worker printed. */
  readonly onWorkerLine: (run: string, line: string) => void;
  /** Called when an attempt has claimed a run. */
  readonly onClaimed: (settings: RunSettings) => void;
}

/** One attempt at a run. */
export interface Attempt {
  readonly config: LoadedConfig;
  readonly placement: Placement;
  readonly processes: number;
  /** Which GPU computes each part; null if the settings do not say. */
  readonly placed: PlacedParts | null;
  /** Asks this run to checkpoint and end. */
  readonly stop: AbortSignal;
}

/** The context of an attempt that computes on some GPUs; `command` is this process's command line. */
export function contextOf(settings: RunSettings, command: readonly string[], gpus: readonly number[]) {
  return {
    command,
    versions: versions(settings),
    parents: dependencies(settings).map((reference) => ({ ...reference })),
    devices: gpus.map((index) => `gpu:${index}`),
  };
}

export function versions(settings: RunSettings): Record<string, string> {
  const require = createRequire(import.meta.url);
  const versionIn = (file: string): string => (require(file) as { version: string }).version;
  return {
    editrl: versionIn('../../../../package.json'),
    node: process.version,
    'onnxruntime-node': versionIn('onnxruntime-node/package.json'),
    ...programVersions(settings),
  };
}

/** Versions of the installed programs that affect a run's results: ffmpeg, if the run reads videos. */
export function programVersions(settings: RunSettings): Record<string, string> {
  if (!isTrainable(settings)) return {};
  const needs = recipeOf(settings).needs(settings, () => null);
  const ffmpeg = needs.some(({ kind }) => kind === 'ffmpeg') ? ffmpegVersion() : null;
  return ffmpeg === null ? {} : { ffmpeg };
}
