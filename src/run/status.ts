/** What a run is doing, according to its folder and to the processes of this machine: combines its state and its lock. */
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
 * `dead`: the state says that the run goes on, but no process holds it any more. `unreadable`: this version cannot read the folder's records.
 */
export type ShownState = RunStateName | 'dead' | 'unreadable';

export interface RunStatus {
  readonly run_name: string;
  readonly state: ShownState;
  readonly iteration: number;
  readonly num_iterations: number;
  /** Mean training reward of the last recorded iteration, on the reward's own scale; null if it has none. */
  readonly reward: number | null;
  /** Names of the hack alarms that are active in the last recorded iteration. */
  readonly alarms: readonly string[];
  /** The best of its checkpoints, where `checkpoint.keep_best` says by what. */
  readonly best_checkpoint: BestCheckpoint | null;
  /** What was asked of its training server; null where none was asked. */
  readonly spent: SpendingTotals | null;
  /** Seconds since the run's last heartbeat; null before the first. */
  readonly heartbeat_age_s: number | null;
  /** The host, process and devices, or the Slurm job, that hold the run; null when nothing does. */
  readonly where: string | null;
  /** Why it waits, failed or was interrupted, and what to do about a dead one. */
  readonly reason: string | null;
}

/** States in which a process should be holding the run. */
const ACTIVE: Readonly<Record<RunStateName, boolean>> = {
  queued: false,
  running: true,
  waiting: true,
  finished: false,
  failed: false,
  interrupted: false,
};

/** Reads the status of a run. Never raises for problems in the folder: they are the status. */
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

/** Where a run is held: its host, process and devices, or its Slurm job; null when nothing holds it. */
export function describeWhere(lock: HeldBy | null, record: RunRecord | null): string | null {
  if (lock === null) return null;
  if (lock.slurm_job_id !== null) return `Slurm job ${lock.slurm_job_id} on ${lock.host}`;
  const devices = record?.attempts.at(-1)?.devices ?? [];
  return `${lock.host}, process ${lock.pid}${devices.length === 0 ? '' : `, ${devices.join(', ')}`}`;
}

/** The lock of a run while its owner is alive, or may be; null when nobody holds it. Raises RunError. */
export function liveLock(paths: RunPaths, world: LockWorld = realLockWorld()): HeldBy | null {
  const lock = readLock(paths, world);
  return lock !== null && lockProblem(lock, world) !== null ? lock : null;
}

/** As `liveLock`, for lists: a lock that cannot be read may be held, and the act on that run reports it. */
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
  // A record without a state: the run was claimed but has not begun.
  const says: RunStateName = state?.state ?? (lock === null ? 'queued' : 'running');
  const reason = state?.reason ?? null;
  if (!ACTIVE[says]) return { shown: says, reason };
  const resume = `\`editrl resume ${name}\` continues it`;
  if (lock === null) return { shown: 'dead', reason: `no process holds it; ${resume}` };
  if (lockProblem(lock, world) === null) {
    const gone =
      lock.host === world.host
        ? `process ${lock.pid} is gone`
        : `${lock.host} was last seen ${formatAge(lock.ageS)} ago`;
    return { shown: 'dead', reason: `${gone}; ${resume}` };
  }
  if (lock.ageS > STALE_AFTER_S && !clockMoved(lock, world)) {
    const silent = `no sign of life for ${formatAge(lock.ageS)}: see \`editrl logs ${name}\`, end it with \`editrl stop ${name} --now\``;
    return { shown: says, reason: reason === null ? silent : `${reason}; ${silent}` };
  }
  return { shown: says, reason };
}

/** Ticks of Linux, in which the start of a process is counted, per second. */
const TICKS_PER_S = 100;
/** A process can hold a lock a little before it has read the clock. */
const SLACK_S = 60;

/** Whether a heartbeat seems older than the process that gave it, of this machine: the clock was set since. */
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

/** `reward/mean` and the alarms of the last whole line of the metrics, read from the end of the file. */
function lastLine(paths: RunPaths): Pick<RunStatus, 'reward' | 'alarms'> {
  const line = withLog(paths.metrics, null, (log) => log.last());
  if (line === null) return { reward: null, alarms: [] };
  try {
    const metrics = JSON.parse(line) as Record<string, unknown>;
    const value = decodeNumber(metrics['reward/mean']);
    return { reward: value === null || !Number.isFinite(value) ? null : value, alarms: activeAlarms(metrics) };
  } catch (cause) {
    throw new RunError('the last line is not a line of this journal', { where: paths.metrics, cause });
  }
}
