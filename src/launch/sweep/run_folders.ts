/** What the run directories say about the runs of a sweep. They are its only memory: nothing else is kept between sweeps. */
import type { SettingChange } from '../../config/hash.js';
import type { LoadedConfig } from '../../config/load.js';
import { RunError } from '../../core/errors.js';
import { changedFrom } from '../../run/claim/claim_request.js';
import { acquireLock, lockProblem, readLock, realLockWorld } from '../../run/claim/lock.js';
import { readMetrics } from '../../run/metrics.js';
import { RunPaths } from '../../run/paths.js';
import { formatChanges, readRecord, type RunRecord } from '../../run/record.js';
import { setAside } from '../../run/remove.js';
import { isDone, readState, STOPPED_BY_SWEEP, writeState } from '../../run/state.js';
import type { RunFolderState } from './schedule.js';
import type { RunWorld } from './sweep.js';

/** Inspects one run. A directory that is unreadable or has other settings is `refused`, unless the run failed; never raises for it. */
export function inspect(config: LoadedConfig): RunFolderState {
  const paths = RunPaths.of(config.settings);
  try {
    const held = readLock(paths);
    const holder = held === null ? null : lockProblem(held, realLockWorld());
    if (holder !== null) return { kind: 'elsewhere', holder: holder.holder };
    const record = readRecord(paths);
    if (record === null) return { kind: 'open', iteration: 0, failed: null, interrupted: false };
    const changes = refusedChanges(record, config);
    if (changes.length === 0) return ofState(paths, config.settings.num_iterations);
    const state = readState(paths);
    if (state?.state !== 'failed') return { kind: 'refused', reason: otherSettings(changes, config) };
    return { kind: 'open', iteration: 0, failed: state.reason ?? 'it failed', interrupted: false, outdated: true };
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    return { kind: 'refused', reason: error.toText() };
  }
}

/** What decides a run's result and has changed since its directory was made, but for what its config allows to change. */
export function refusedChanges(record: RunRecord, config: LoadedConfig): SettingChange[] {
  const allowed = config.allowChanges ?? [];
  return changedFrom(record, config).filter(({ key }) => !allowed.includes(key));
}

function ofState(paths: RunPaths, numIterations: number): RunFolderState {
  const state = readState(paths);
  const iteration = state?.iteration ?? 0;
  if (isDone(state, numIterations)) {
    const reason = state?.stopped_early === true ? (state.reason ?? '') : '';
    if (!reason.startsWith(STOPPED_BY_SWEEP)) return { kind: 'finished', iteration };
    return { kind: 'stopped', iteration, reason: reason.slice(STOPPED_BY_SWEEP.length) };
  }
  const failed = state?.state === 'failed' ? (state.reason ?? 'it failed') : null;
  return { kind: 'open', iteration, failed, interrupted: state?.state === 'interrupted' };
}

function otherSettings(changes: readonly SettingChange[], config: LoadedConfig): string {
  return [
    'it was started with other settings, and these decide its result:',
    ...formatChanges(changes).map((line) => `  ${line}`),
    `Set them back, or move ${RunPaths.of(config.settings).dir} away to start it again.`,
  ].join('\n');
}

/** Records in a run's directory that the sweep stopped it, so that no later command continues it. */
export function markStopped(config: LoadedConfig, reason: string): void {
  const paths = RunPaths.of(config.settings);
  const lock = acquireLock(paths);
  try {
    const state = readState(paths);
    writeState(paths, {
      state: 'finished',
      iteration: state?.iteration ?? 0,
      num_iterations: config.settings.num_iterations,
      reason: `${STOPPED_BY_SWEEP}${reason}`,
      stopped_early: true,
    });
  } finally {
    lock.release();
  }
}

/**
 * Sets aside the folder of a run that failed and whose settings have changed since. Returns the new folder; null if it has no such folder. Raises
 * RunError when another process holds the run or the disk refuses.
 */
export function setAsideOutdated(config: LoadedConfig): string | null {
  const found = inspect(config);
  return found.kind === 'open' && found.outdated === true ? setAside(RunPaths.of(config.settings)) : null;
}

/** The last finite value of a metric up to an iteration; null if there is none. */
export function metricAt(paths: RunPaths, metric: string, iteration: number): number | null {
  const values = readMetrics(paths)
    .filter((line) => line.iteration <= iteration)
    .map((line) => line.metrics[metric])
    .filter((value) => value !== undefined && Number.isFinite(value));
  return values.at(-1) ?? null;
}

/** The run directories on the disk. */
export const runFolders: RunWorld = {
  inspect,
  markStopped,
  setAsideOutdated,
  metricAt: (config, metric, iteration) => metricAt(RunPaths.of(config.settings), metric, iteration),
};
