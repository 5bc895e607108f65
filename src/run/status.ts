/** The status of a run, from its state, its lock and the processes of this machine. */
import { uptime } from 'node:os';
import { EditrlError, RunError } from '../core/errors.js';
import { withLog } from '../core/log.js';
import { decodeNumber } from './journal.js';
import {
  formatAge,
  lockProblem,
  readLock,
  realLockWorld,
  seesProcessesOf,
  STALE_AFTER_S,
  type HeldBy,
  type LockWorld,
} from './claim/lock.js';
import type { RunPaths } from './paths.js';
import { activeAlarms } from './report/alarms.js';
import { readRecord, type RunRecord } from './record.js';
import { readSpent, type SpendingTotals } from './spending.js';
import { readState, type BestCheckpoint, type RunState, type RunStateName } from './state.js';

/**
 * `dead`: the state is active, but no process owns the run. `unreadable`: this version cannot read the folder's records.
 */
export type ShownState = RunStateName | 'dead' | 'unreadable';

export interface RunStatus {
  readonly run_name: string;
  readonly state: ShownState;
  readonly iteration: number;
  readonly num_iterations: number;
  /** Mean training reward of the last recorded iteration, on the reward's own scale. Null if there is none. */
  readonly reward: number | null;
  /** Names of the active alarms in the last recorded iteration. */
  readonly alarms: readonly string[];
  /** The best checkpoint by `checkpoint.keep_best`. */
  readonly best_checkpoint: BestCheckpoint | null;
  /** Tokens of its training server. Null without one. */
  readonly spent: SpendingTotals | null;
  /** Seconds since the last heartbeat. Null before the first. */
  readonly heartbeat_age_s: number | null;
  /** The host, process and devices, or the Slurm job, of the owner. Null if there is none. */
  readonly where: string | null;
  /** Reason for waiting, failure or interruption, or advice for a dead run. */
  readonly reason: string | null;
}

/** States in which a process must own the run. */
const ACTIVE: Readonly<Record<RunStateName, boolean>> = {
  queued: false,
  running: true,
  waiting: true,
  finished: false,
  failed: false,
  interrupted: false,
};

/** Reads the status of a run. Never raises for problems in the folder, which the status reports. */
export function readStatus(paths: RunPaths, world: LockWorld = realLockWorld()): RunStatus {
  try {
    const record = readRecord(paths);
    const state = readState(paths);
    const lock = readLock(paths, world);
    const { shown, reason } = deriveState(paths.runName, state, lock, world);
    return {
      run_name: paths.runName,
      state: shown,
      iteration: state?.iteration ?? 0,
      num_iterations: state?.num_iterations ?? Number(record?.settings['num_iterations'] ?? 0),
      ...lastLine(paths),
      best_checkpoint: state?.best_checkpoint ?? null,
      spent: readSpent(paths),
      heartbeat_age_s: heartbeatAge(state, lock, world),
      where: shown === 'dead' ? null : describeWhere(lock, record),
      reason,
    };
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return {
      run_name: paths.runName,
      state: 'unreadable',
      iteration: 0,
      num_iterations: 0,
      reward: null,
      alarms: [],
      best_checkpoint: null,
      spent: null,
      heartbeat_age_s: null,
      where: null,
      reason: error.toText().replaceAll(/\n\s*/g, ' '),
    };
  }
}

/** The host, process and devices, or the Slurm job, of a run's owner. Null if there is none. */
export function describeWhere(lock: HeldBy | null, record: RunRecord | null): string | null {
  if (lock === null) return null;
  if (lock.slurm_job_id !== null) return `Slurm job ${lock.slurm_job_id} on ${lock.host}`;
  const devices = record?.attempts.at(-1)?.devices ?? [];
  return `${lock.host}, process ${lock.pid}${devices.length === 0 ? '' : `, ${devices.join(', ')}`}`;
}

/** The lock of a run whose owner is or may be alive. Null if there is no owner. Raises RunError. */
export function liveLock(paths: RunPaths, world: LockWorld = realLockWorld()): HeldBy | null {
  const lock = readLock(paths, world);
  return lock !== null && lockProblem(lock, world) !== null ? lock : null;
}

/** Like `liveLock`, for lists. An unreadable lock counts as owned, and using that run reports it. */
export function mayBeHeld(paths: RunPaths, world: LockWorld = realLockWorld()): boolean {
  try {
    return liveLock(paths, world) !== null;
  } catch (error) {
    if (error instanceof EditrlError) return true;
    throw error;
  }
}

function deriveState(
  name: string,
  state: RunState | null,
  lock: HeldBy | null,
  world: LockWorld,
): { shown: ShownState; reason: string | null } {
  // A record without a state: the run was claimed but has not started.
  const says: RunStateName = state?.state ?? (lock === null ? 'queued' : 'running');
  const reason = state?.reason ?? null;
  if (!ACTIVE[says]) return { shown: says, reason };
  const resume = `continue with \`editrl resume ${name}\``;
  if (lock === null) return { shown: 'dead', reason: `no process is running it; ${resume}` };
  if (lockProblem(lock, world) === null) {
    const gone =
      lock.host === world.host
        ? `process ${lock.pid} is gone`
        : `no heartbeat from ${lock.host} for ${formatAge(lock.ageS)}`;
    return { shown: 'dead', reason: `${gone}; ${resume}` };
  }
  if (lock.ageS > STALE_AFTER_S && !clockMoved(lock, world)) {
    const silent = `no heartbeat for ${formatAge(lock.ageS)}; see \`editrl logs ${name}\`, or kill it with \`editrl stop ${name} --now\``;
    return { shown: says, reason: reason === null ? silent : `${reason}; ${silent}` };
  }
  return { shown: says, reason };
}

/** Linux clock ticks per second, the unit of process start times. */
const TICKS_PER_S = 100;
/** Tolerance in seconds between taking a lock and reading the clock. */
const SLACK_S = 60;

/** Whether a heartbeat seems older than its process on this machine, because the clock was changed. */
function clockMoved(lock: HeldBy, world: LockWorld): boolean {
  const ticks = Number(lock.process_start ?? NaN);
  if (!seesProcessesOf(lock, world) || !Number.isFinite(ticks) || ticks <= 0) return false;
  return lock.ageS > uptime() - ticks / TICKS_PER_S + SLACK_S;
}

function heartbeatAge(state: RunState | null, lock: HeldBy | null, world: LockWorld): number | null {
  if (lock !== null) return clockMoved(lock, world) ? null : tenths(lock.ageS);
  const written = Date.parse(state?.heartbeat ?? '');
  return Number.isNaN(written) ? null : tenths(Math.max(0, (world.nowMs() - written) / 1000));
}

function tenths(seconds: number): number {
  return Math.round(seconds * 10) / 10;
}

/** `reward/mean` and the alarms of the last complete line of the metrics, read from the end of the file. */
function lastLine(paths: RunPaths): Pick<RunStatus, 'reward' | 'alarms'> {
  const line = withLog(paths.metrics, null, (log) => log.last());
  if (line === null) return { reward: null, alarms: [] };
  try {
    const metrics = JSON.parse(line) as Record<string, unknown>;
    const value = decodeNumber(metrics['reward/mean']);
    return { reward: value === null || !Number.isFinite(value) ? null : value, alarms: activeAlarms(metrics) };
  } catch (cause) {
    throw new RunError('invalid last line', { where: paths.metrics, cause });
  }
}
