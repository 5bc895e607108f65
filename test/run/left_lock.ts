/** Locks that other processes left behind. */
import { mkdirSync, utimesSync, writeFileSync } from 'node:fs';
import type { LockOwner } from '../../src/run/claim/lock.js';
import type { RunPaths } from '../../src/run/paths.js';

/** A lock as process 42 of this host leaves it, but for what `of` says; its last heartbeat was `ageS` seconds ago. */
export function leaveLock(at: RunPaths, of: Partial<LockOwner>, ageS: number): void {
  mkdirSync(at.dir, { recursive: true });
  const owner = { token: 'old', host: 'here', pid: 42, process_start: '1', slurm_job_id: null, acquired_at: '', ...of };
  writeFileSync(at.lock, JSON.stringify(owner));
  const then = Date.now() / 1000 - ageS;
  utimesSync(at.lock, then, then);
}
