/**
 * A file that asks a run to end, for runs whose process is not theirs alone: a sweep of another trainer supervises several of them, and a
 * signal would end all.
 */
import { rmSync } from 'node:fs';
import { writeFileAtomic } from '../core/files.js';
import { readPlainText } from '../core/plain_file.js';
import type { RunPaths } from './paths.js';
import { readRecord } from './record.js';

/** To save and end, or to end at once. */
export type StopRequest = 'save' | 'now';

/** Why a run ended that was killed, in its state. */
export const KILLED = 'killed with `editrl stop --now`';

/** Whether a run is asked by a file: one of another trainer, which its launcher's process supervises without one of its own. */
export function takesStopRequests(paths: RunPaths): boolean {
  const launch = readRecord(paths)?.settings['launch'];
  return typeof launch === 'object' && launch !== null && 'command' in launch && launch.command !== null;
}

/** Raises RunError where the disk refuses. */
export function requestStop(paths: RunPaths, how: StopRequest): void {
  writeFileAtomic(paths.stopRequest, how);
}

/** What is asked; null where nothing is, or where it cannot be read: whoever asks waits, and sees that the run goes on. */
export function readStopRequest(paths: RunPaths): StopRequest | null {
  try {
    const asked = readPlainText(paths.stopRequest, 1024);
    if (asked === null) return null;
    return asked === 'now' ? 'now' : 'save';
  } catch {
    return null;
  }
}

/** A request is for the attempt that it was made in. */
export function forgetStopRequest(paths: RunPaths): void {
  rmSync(paths.stopRequest, { force: true });
}
