/** A file that asks the owner of a run, or of an experiment that is swept, to end it. */
import { rmSync } from 'node:fs';
import { writeFileAtomic } from '../../core/files.js';
import { readPlainText } from '../../core/plain_file.js';
import type { RunPaths } from '../paths.js';

/** Save and end, or end at once. */
export type StopRequest = 'save' | 'now';

/** The reason in the state of a run that was killed. */
export const KILLED = 'killed with `editrl stop --now`';

/** Raises RunError when the disk refuses. */
export function requestStop(paths: RunPaths, how: StopRequest): void {
  writeFileAtomic(paths.stopRequest, how);
}

/** The pending request; null if there is none or it cannot be read: whoever asked is waiting, and sees that the run goes on. */
export function readStopRequest(paths: RunPaths): StopRequest | null {
  try {
    const asked = readPlainText(paths.stopRequest, 1024);
    if (asked === null) return null;
    return asked === 'now' ? 'now' : 'save';
  } catch {
    return null;
  }
}

/** Drops a request, which is only for the owner to which it was made. */
export function clearStopRequest(paths: RunPaths): void {
  rmSync(paths.stopRequest, { force: true });
}
