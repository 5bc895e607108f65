/** Reads the state of a sweep's runs from their directories. Nothing else is kept between sweeps. */
import type { SettingChange } from '../../config/hash.js';
import type { LoadedConfig } from '../../config/load.js';
import { RunError } from '../../core/errors.js';
import { changedFrom } from '../../run/claim/claim_request.js';
import { lockProblem, readLock, realLockWorld } from '../../run/claim/lock.js';
import { RunPaths } from '../../run/paths.js';
import { formatChanges, readRecord, type RunRecord } from '../../run/record.js';
import { setAside } from '../../run/remove.js';
import { isDone, readState } from '../../run/state.js';
import type { RunFolderState } from './schedule.js';
import type { RunWorld } from './sweep.js';

/**
 * Inspects one run. A directory that is unreadable or has other settings is `refused`, unless the run failed. Never
 * raises for it.
 */
export function inspect(config: LoadedConfig): RunFolderState {
  const paths = RunPaths.of(config.settings);
  try {
    const held = readLock(paths);
    const holder = held === null ? null : lockProblem(held, realLockWorld());
    if (holder !== null) return { kind: 'elsewhere', holder: holder.holder };
    const record = readRecord(paths);
    if (record === null) return { kind: 'open', failed: null, interrupted: false };
    const changes = refusedChanges(record, config);
    if (changes.length === 0) return ofState(paths, config.settings.num_iterations);
    const state = readState(paths);
    if (state?.state !== 'failed') return { kind: 'refused', reason: otherSettings(changes, config) };
    return { kind: 'open', failed: state.reason ?? 'it failed', interrupted: false, outdated: true };
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    return { kind: 'refused', reason: error.toText() };
  }
}

/** Changes of result-affecting settings since the directory was made, without those that the config allows. */
export function refusedChanges(record: RunRecord, config: LoadedConfig): SettingChange[] {
  const allowed = config.allowChanges ?? [];
  return changedFrom(record, config).filter(({ key }) => !allowed.includes(key));
}

function ofState(paths: RunPaths, numIterations: number): RunFolderState {
  const state = readState(paths);
  if (isDone(state, numIterations)) return { kind: 'finished' };
  const failed = state?.state === 'failed' ? (state.reason ?? 'it failed') : null;
  return { kind: 'open', failed, interrupted: state?.state === 'interrupted' };
}

function otherSettings(changes: readonly SettingChange[], config: LoadedConfig): string {
  return [
    'it was started with other settings, and these decide its result:',
    ...formatChanges(changes).map((line) => `  ${line}`),
    `Set them back, or move ${RunPaths.of(config.settings).dir} away to start it again.`,
  ].join('\n');
}

/**
 * Moves the folder of a failed run with outdated settings aside and returns its new path. Returns null if there is no
 * such folder. Raises RunError when another process holds the run or the disk refuses.
 */
export function setAsideOutdated(config: LoadedConfig): string | null {
  const found = inspect(config);
  return found.kind === 'open' && found.outdated === true ? setAside(RunPaths.of(config.settings)) : null;
}

/** The run directories on the disk. */
export const runFolders: RunWorld = { inspect, setAsideOutdated };
