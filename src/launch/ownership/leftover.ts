/** What an attempt has started, recorded so that a later owner of the run can end what a launcher that was killed has left running. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import { homeOf, realLockWorld, seesProcessesOf, type ProcessHome } from '../../run/lock.js';
import type { RunPaths } from '../../run/paths.js';
import { readJson } from '../../run/state.js';
import { endGroup, endMarked } from '../processes/child.js';
import { markedProcesses } from '../processes/guardian.js';
import type { Started } from '../processes/supervise.js';

const GRACE_S = 2;

/** `workers.json`: what an attempt has started, for the process that takes the run over. */
interface WorkersFile extends ProcessHome {
  readonly mark: string;
  readonly pids: readonly number[];
}

function workersFile(paths: RunPaths): string {
  return join(paths.dir, 'workers.json');
}

/** Records what an attempt has started; only the owner of the run may call it. Raises RunError when the disk refuses. */
export function recordWorkers(paths: RunPaths, { mark, workers }: Started): void {
  const content: WorkersFile = {
    ...homeOf(realLockWorld()),
    mark,
    pids: workers.map(({ pid }) => pid),
  };
  const path = workersFile(paths);
  try {
    // Not synced: when the machine goes down, so do the workers.
    writeFileSync(path, `${JSON.stringify(content)}\n`);
  } catch (cause) {
    throw diskError(path, cause);
  }
}

/**
 * Ends what an earlier attempt left running on this machine; the owner calls it before it starts anything. Anybody who can write to the folder can write
 * that file: only processes that have the attempt's mark in their environment are ended, with their groups.
 */
export async function endLeftoverWorkers(paths: RunPaths): Promise<void> {
  const left = readWorkers(paths);
  if (left === null || !seesProcessesOf(left, realLockWorld())) return;
  const marked = markedProcesses(left.mark);
  const groups = left.pids.filter((pid) => marked.includes(pid));
  await Promise.all([...groups.map((pid) => endGroup(pid, GRACE_S)), endMarked(left.mark, GRACE_S)]);
}

/** Null if nothing was recorded, or if the launcher died while writing. */
function readWorkers(paths: RunPaths): WorkersFile | null {
  try {
    const value = readJson(workersFile(paths)) as Partial<WorkersFile> | null;
    if (value === null || typeof value.mark !== 'string' || !Array.isArray(value.pids)) return null;
    return value as WorkersFile;
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}
