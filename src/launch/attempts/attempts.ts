/** The attempts at a run: placement, training, the state that is recorded at the end, and restarts after failures. */
import { createRequire } from 'node:module';
import { setTimeout as delay } from 'node:timers/promises';
import type { LoadedConfig } from '../../config/load.js';
import { dependencies } from '../../config/models.js';
import { EndpointError, ServerEndedError } from '../../core/errors.js';
import { ffmpegVersion } from '../../data/video/ffmpeg.js';
import { getPath } from '../../core/schema/walk.js';
import { claimRun } from '../../run/claim/claim.js';
import { claimRequest, type AttemptContext } from '../../run/claim/claim_request.js';
import { RunPaths } from '../../run/paths.js';
import { isDone, readState, RUN_STATES } from '../../run/state.js';
import type { RunSettings } from '../../config/schema/run.js';
import {
  checkCores,
  deviceKind,
  processesOf,
  requireFree,
  runDevices,
  wholeMachinePlacement,
  whyFewerProcesses,
  type DeviceKind,
  type Devices,
  type Placement,
} from '../machine/devices.js';
import { checkPlacement, placeParts, type PlacedParts } from '../machine/placement.js';
import { endLeftoverWorkers, Ownership, recordWorkers, STOPPED } from '../ownership/owner.js';
import { isRetryable, messageOf, reasonOf, RunFailed } from '../processes/failure.js';
import type { RunKind } from '../worker/protocol.js';
import { trainNatively } from './native.js';
import type { Attempt, AttemptServices } from './attempt.js';

/** The placement of one run, and signals for that run only. */
export type RunPlacement = Placement & { readonly stop?: AbortSignal; readonly kill?: AbortSignal };

type Place = Pick<Attempt, 'placement' | 'processes' | 'placed'>;

/** Maximum pause before a restart, in seconds. */
const MAX_PAUSE_S = 60;

/** Seconds before the next start, after this many attempts in a row without progress. */
export function restartDelayS(withoutProgress: number): number {
  return withoutProgress === 0 ? 0 : Math.min(MAX_PAUSE_S, 2 ** (withoutProgress - 1));
}

/** Starts runs, and restarts them after a transient failure, as often as their configs allow. */
export class Attempts {
  constructor(private readonly services: AttemptServices) {}

  /** Runs a config to its end as the owner of the run. Without a placement the run has the whole machine. Raises the last attempt's failure. */
  async run(config: LoadedConfig, wanted?: RunPlacement): Promise<RunKind> {
    if (isFinishedBy(config)) {
      const handle = claimRun(claimRequest(config, contextOf(config.settings, this.services.command, [])));
      if (handle.kind === 'finished') return 'already_finished';
      handle.release();
    }
    for (const warning of config.warnings) this.services.say(`warning: ${warning}`);
    const place = this.#place(config, wanted);
    const owned = Ownership.take(RunPaths.of(config.settings));
    try {
      await endLeftoverWorkers(owned.paths);
      return await this.#attempts(config, owned, place, wanted);
    } finally {
      owned.release();
    }
  }

  async #attempts(
    config: LoadedConfig,
    owned: Ownership,
    place: Place,
    wanted: RunPlacement | undefined,
  ): Promise<RunKind> {
    const { say, stop: stopAll, kill: killAll } = this.services;
    const { launch, run_name } = config.settings;
    const { paths, lost } = owned;
    const any = (...signals: readonly (AbortSignal | undefined)[]): AbortSignal =>
      AbortSignal.any(signals.filter((signal) => signal !== undefined));
    const signals = {
      stop: any(stopAll, wanted?.stop, owned.stop),
      kill: any(killAll, wanted?.kill, owned.kill, lost),
    };
    let [reached, withoutProgress, now] = [readState(paths)?.iteration ?? 0, 0, config];
    for (let restarts = 0; ; restarts++) {
      try {
        return await this.#attempt(now, owned, place, signals);
      } catch (error) {
        if (restarts >= launch.max_restarts || !isRetryable(error) || signals.stop.aborted || lost.aborted) throw error;
        say(messageOf(error));
        const iteration = readState(paths)?.iteration ?? 0;
        withoutProgress = iteration > reached ? 0 : withoutProgress + 1;
        reached = Math.max(reached, iteration);
        const waitS = restartDelayS(withoutProgress);
        const when = waitS === 0 ? '' : `in ${waitS} s, because it made no progress, `;
        say(`restarting ${run_name} ${when}from its last checkpoint (${restarts + 1} of ${launch.max_restarts})`);
        await delay(waitS * 1000, undefined, { signal: any(signals.stop, signals.kill) }).catch(() => undefined);
        lost.throwIfAborted();
        if (signals.stop.aborted || signals.kill.aborted) {
          owned.recordEnd('interrupted', reasonToStop(signals.kill));
          return 'interrupted';
        }
        // The failed attempt has already recorded the allowed change.
        now = { ...config, allowChanges: [] };
      }
    }
  }

  async #attempt(
    config: LoadedConfig,
    owned: Ownership,
    place: Place,
    signals: Pick<Attempt, 'stop' | 'kill'>,
  ): Promise<RunKind> {
    const { services } = this;
    const { settings } = config;
    const { run_name } = settings;
    const models = settings.launch.command === null ? await services.hub.commitsOf(config) : {};
    const handle = claimRun(
      claimRequest(config, { ...contextOf(settings, services.command, place.placement.devices), models }),
      undefined,
      owned.lock,
    );
    if (handle.kind === 'finished') return 'already_finished';
    services.onClaimed(settings);
    const terminal = (line: string): void => services.onWorkerLine(run_name, line);
    const { openRunLog, FILES_ONLY } = await import('../../run/logs.js');
    const log = openRunLog({ paths: owned.paths, attempt: handle.attempt, rank: 0, terminal });
    const tracked = services.trackings.attempt(settings);
    const attempt: Attempt = {
      ...{ config, handle, log, ...place },
      stop: AbortSignal.any([signals.stop, tracked.stop]),
      kill: signals.kill,
      onStarted: (started) => {
        tracked.workers = started.workers;
        recordWorkers(owned.paths, started);
      },
    };
    try {
      tracked.begin((line, level) => void log.logger.log(level, line));
      for (const note of handle.notes) log.logger.info(note);
      const train = settings.launch.command === null ? trainNatively : (await import('./command.js')).runCommand;
      const kind = await train(attempt, services);
      owned.lost.throwIfAborted();
      if (kind === 'interrupted') owned.recordEnd('interrupted', reasonToStop(signals.kill));
      return kind;
    } catch (error) {
      owned.lost.throwIfAborted();
      log.logger.debug((error instanceof Error ? error.stack : undefined) ?? messageOf(error));
      log.logger.error(messageOf(error), FILES_ONLY);
      const stayedAway = error instanceof EndpointError && !(error instanceof ServerEndedError);
      // The state that a worker recorded before it died stays. An error of this process replaces it.
      const over = error instanceof RunFailed ? undefined : RUN_STATES;
      owned.recordEnd(stayedAway ? 'interrupted' : 'failed', reasonOf(error), over);
      throw error;
    } finally {
      tracked.end();
      await log.close();
    }
  }

  /** Assigns part of the machine to a run. Raises ConfigError for GPUs that do not exist, RunError for GPUs in use. */
  #place({ settings }: LoadedConfig, wanted?: RunPlacement): Place {
    const { say } = this.services;
    const { launch, run_name } = settings;
    const devices = this.services.devices();
    const kind = deviceKind(settings, devices);
    const own = runDevices(settings, devices);
    const processes = processesOf(settings, own, kind);
    const fewer = whyFewerProcesses(settings, own, kind);
    if (fewer !== null) say(`${run_name}: ${fewer}`);
    if (kind === 'cpu') checkCores(processes, devices.cpus);
    const placed = partsOf(settings, own, kind, wanted);
    const whole = wanted ?? wholeMachinePlacement({ ...launch, processes }, own, kind);
    const placement = placed === null || placed.gpus.length === 0 ? whole : { ...whole, devices: placed.gpus };
    const note = placed?.note ?? null;
    if (note !== null) say(`${run_name}: ${note}`);
    requireFree(placement.devices);
    return { placement, processes, placed };
  }
}

/** The reason to record for a stopped run. */
function reasonToStop(kill: AbortSignal): string {
  const reason: unknown = kill.reason;
  return typeof reason === 'string' ? reason : kill.aborted ? 'killed' : STOPPED;
}

/** The context of an attempt on some GPUs. `command`: this process's command line. */
function contextOf(settings: RunSettings, command: readonly string[], gpus: readonly number[]): AttemptContext {
  return {
    command,
    versions: versions(settings),
    parents: dependencies(settings).map((reference) => ({ ...reference })),
    devices: gpus.map((index) => `gpu:${index}`),
  };
}

function versions(settings: RunSettings): Record<string, string> {
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
  // Only datasets of videos are cut into frames.
  const ffmpeg = getPath(settings, 'data.frames') === undefined ? null : ffmpegVersion();
  return ffmpeg === null ? {} : { ffmpeg };
}

/** The GPU of each part of a run, among the GPUs that it may use or was given. Null without `launch.placement`. */
function partsOf(settings: RunSettings, own: Devices, kind: DeviceKind, wanted?: RunPlacement): PlacedParts | null {
  const { placement, devices, command } = settings.launch;
  if (placement === null || command !== null) return null;
  checkPlacement(settings.launch);
  const allowed = wanted?.devices ?? devices;
  const all = kind === 'cpu' ? [] : own.gpus;
  return placeParts(
    placement,
    all.filter(({ index }) => allowed === null || allowed.includes(index)),
  );
}

/** Whether nothing is left to do. The run is then only claimed, which checks its settings. */
function isFinishedBy({ settings, allowChanges = [] }: LoadedConfig): boolean {
  const state = readState(RunPaths.of(settings));
  // An allowed change may let a run continue that stopped early.
  if (state?.stopped_early === true && allowChanges.length > 0) return false;
  return isDone(state, settings.num_iterations);
}
