/** A file that requests a stop from the owner of a run or of a sweep. */
import { rmSync } from 'node:fs';
import { writeFileAtomic } from '../../core/files.js';
import { readPlainText } from '../../core/plain_file.js';
import type { RunPaths } from '../paths.js';

/** Save and stop, or kill. */
export type StopRequest = 'save' | 'now';

/** The reason in the state of a killed run. */
export const KILLED = 'killed with `editrl stop --now`';

/** Raises RunError for a disk error. */
export function requestStop(paths: RunPaths, how: StopRequest): void {
  writeFileAtomic(paths.stopRequest, how);
}

/** The pending request. Null if there is none or it is unreadable. The requester waits and sees that the run continues. */
export function readStopRequest(paths: RunPaths): StopRequest | null {
  try {
    const text = readPlainText(paths.stopRequest, 1024);
    if (text === null) return null;
    return text === 'now' ? 'now' : 'save';
  } catch {
    return null;
  }
}

/** Drops a request, which is only valid for the current owner. */
export function clearStopRequest(paths: RunPaths): void {
  rmSync(paths.stopRequest, { force: true });
}
