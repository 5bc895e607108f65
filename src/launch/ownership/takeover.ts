/** Takes a run over from a launcher that died: waits for its workers, and ends what it left running. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { InternalError, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import { claimRun, type ClaimRequest, type RunHandle } from '../../run/claim.js';
import {
  acquireLock,
  homeOf,
  lockProblem,
  processStart,
  readLock,
  realLockWorld,
  seesProcessesOf,
  type ProcessHome,
} from '../../run/lock.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { readJson, readState, writeState, type RunStateName } from '../../run/state.js';
import { endGroup, endMarked } from '../processes/child.js';
import { isGroupAlive, launcherOf } from '../processes/guardian.js';
import type { Started } from '../processes/supervise.js';

/** How long the workers of a dead launcher may take to end. */
const ENDING_MS = 15_000;
const POLL_MS = 25;
const GRACE_S = 2;

/** `workers.json`: what an attempt has started, for the process that takes the run over. */
interface WorkersFile extends ProcessHome {
  readonly mark: string;
  readonly workers: readonly { readonly rank: number; readonly pid: number; readonly start: string }[];
}

function workersFile(paths: RunPaths): string {
  return join(paths.dir, 'workers.json');
}

/** Claims a run like `claimRun`; if a worker without a launcher still holds it, waits first. */
export async function claimWhenFree(request: ClaimRequest): Promise<RunHandle> {
  const paths = RunPaths.of(request.settings);
  const deadline = performance.now() + ENDING_MS;
  while (holderIsEnding(paths) && performance.now() < deadline) await delay(POLL_MS);
  return claimRun(request);
}

function holderIsEnding(paths: RunPaths): boolean {
  const world = realLockWorld();
  const held = readLock(paths, world);
  if (held === null || !seesProcessesOf(held, world) || lockProblem(held, world) === null) return false;
  const launcher = launcherOf(held.pid);
  return launcher !== null && processStart(launcher.pid) !== launcher.start;
}

/** Records what an attempt has started; only the owner of the run may call it. Raises RunError when the disk refuses. */
export function recordWorkers(paths: RunPaths, { mark, workers }: Started): void {
  const content: WorkersFile = {
    ...homeOf(realLockWorld()),
    mark,
    workers: workers.map(({ rank, pid, start }) => ({ rank, pid, start })),
  };
  const path = workersFile(paths);
  try {
    // Not synced: when the machine goes down, so do the workers.
    writeFileSync(path, `${JSON.stringify(content)}\n`);
  } catch (cause) {
    throw diskError(path, cause);
  }
}

/** Ends what an earlier attempt left running on this machine; the owner calls it before it starts anything. */
export async function endLeftoverWorkers(paths: RunPaths): Promise<void> {
  const left = readWorkers(paths);
  if (left === null || !seesProcessesOf(left, realLockWorld())) return;
  const groups = left.workers.filter(({ pid, start }) => {
    const found = processStart(pid);
    // A group without its leader keeps its number, so it cannot belong to somebody else.
    return found === null ? isGroupAlive(pid) : found === start;
  });
  await Promise.all([...groups.map(({ pid }) => endGroup(pid, GRACE_S)), endMarked(left.mark, GRACE_S)]);
}

/** Null if nothing was recorded, or if the launcher died while writing. */
function readWorkers(paths: RunPaths): WorkersFile | null {
  try {
    const value = readJson(workersFile(paths)) as Partial<WorkersFile> | null;
    if (value === null || typeof value.mark !== 'string' || !Array.isArray(value.workers)) return null;
    return value as WorkersFile;
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}

/**
 * Records how an attempt ended whose owner could not do so itself; `over` names the states that may be replaced. Writes nothing if somebody else
 * holds the run, or has held it since.
 */
export function recordEndForOwner(
  paths: RunPaths,
  attempt: number,
  end: { readonly state: RunStateName; readonly reason: string },
  over: readonly RunStateName[] = ['queued', 'running', 'waiting'],
): void {
  if (attempt < 1) throw new InternalError('an attempt that was never claimed has no state');
  try {
    const lock = acquireLock(paths);
    try {
      const state = readState(paths);
      const latest = readRecord(paths)?.attempts.length;
      if (state !== null && latest === attempt && over.includes(state.state)) writeState(paths, { ...state, ...end });
    } finally {
      lock.release();
    }
  } catch (error) {
    // In use by another process, or the disk refuses: the error that ended the attempt is the one to show.
    if (!(error instanceof RunError)) throw error;
  }
}
