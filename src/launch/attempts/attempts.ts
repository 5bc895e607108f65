/** The attempts at a run: where it is placed, which kind of attempt it needs, and when it is restarted after a failure. */
import type { LoadedConfig } from '../../config/load.js';
import { claimRun } from '../../run/claim.js';
import { claimRequest } from '../../run/claim_request.js';
import { RunPaths } from '../../run/paths.js';
import { isDone, readState } from '../../run/state.js';
import type { RunSettings } from '../../schema/run.js';
import { deviceKind, runDevices, processesOf, whyFewerProcesses } from '../machine/device_kind.js';
import {
  checkCores,
  requireFree,
  wholeMachinePlacement,
  type DeviceKind,
  type Devices,
  type Placement,
} from '../machine/devices.js';
import { checkPlacement, placeParts, type PlacedParts } from '../machine/placement.js';
import { pauseAsOwner, restartDelayS } from '../ownership/pause.js';
import { isRetryable, messageOf } from '../processes/failure.js';
import type { RunKind } from '../worker/protocol.js';
import { contextOf, type Attempt, type AttemptServices } from './attempt.js';
import { externalAttempt } from './external.js';
import { nativeAttempt } from './native.js';

/** Where one run is placed, and a signal that stops only that run. */
export type RunPlacement = Placement & { readonly stop?: AbortSignal };

/** The two kinds of attempts, by the program that trains the run. */
const attemptBy = { native: nativeAttempt, foreign: externalAttempt } as const;

/** Starts runs, and restarts them after a transient failure, as often as their configs allow. */
export class Attempts {
  constructor(private readonly services: AttemptServices) {}

  /** Runs a config to its end. Without a placement it has the machine to itself. Raises the last attempt's failure. */
  async run(config: LoadedConfig, wanted?: RunPlacement): Promise<RunKind> {
    const { say, stop: stopAll, command } = this.services;
    const { launch, run_name } = config.settings;
    if (isFinishedBy(config)) {
      const handle = claimRun(claimRequest(config, contextOf(config.settings, command, [])));
      if (handle.kind === 'finished') return 'already_finished';
      handle.release();
    }
    for (const warning of config.warnings) say(`warning: ${warning}`);
    const first = { config, ...this.#place(config, wanted) };
    const stop = wanted?.stop === undefined ? stopAll : AbortSignal.any([stopAll, wanted.stop]);
    const paths = RunPaths.of(config.settings);
    let attempt: Attempt = { ...first, stop };
    let [reached, inVain] = [readState(paths)?.iteration ?? 0, 0];
    for (let restarts = 0; ; restarts++) {
      try {
        return await attemptBy[launch.command === null ? 'native' : 'foreign'](attempt, this.services);
      } catch (error) {
        if (restarts >= launch.max_restarts || !isRetryable(error) || stop.aborted) throw error;
        // Somebody killed it on purpose.
        const state = readState(paths);
        if (state?.state === 'interrupted') throw error;
        say(messageOf(error));
        inVain = (state?.iteration ?? 0) > reached ? 0 : inVain + 1;
        reached = Math.max(reached, state?.iteration ?? 0);
        const waitS = restartDelayS(inVain);
        const when = waitS === 0 ? '' : `in ${waitS} s, since it got no further, `;
        say(`${run_name} is started again ${when}from its last checkpoint (${restarts + 1} of ${launch.max_restarts})`);
        if (waitS > 0 && (await pauseAsOwner(paths, waitS * 1000, stop))) return 'interrupted';
        // The failed attempt has already recorded the allowed change.
        attempt = { ...attempt, config: { ...config, allowChanges: [] } };
      }
    }
  }

  /** Assigns part of the machine to a run. Raises ConfigError for GPUs that do not exist, RunError for GPUs that somebody uses. */
  #place({ settings }: LoadedConfig, wanted?: RunPlacement): Pick<Attempt, 'placement' | 'processes' | 'placed'> {
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

/** Which GPU computes each part of a run, among the GPUs that it may use or was given; null if the settings do not say. */
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

/** Whether nothing is left to do: the run is then only claimed, which checks its settings, and no process is started. */
function isFinishedBy({ settings, allowChanges = [] }: LoadedConfig): boolean {
  const state = readState(RunPaths.of(settings));
  // A requested change may let a run continue that ended by its own rule.
  if (state?.stopped_early === true && allowChanges.length > 0) return false;
  return isDone(state, settings.num_iterations);
}
