import { existsSync } from 'node:fs';
import { RunError } from '../core/errors.js';
import type { RunPaths } from '../run/paths.js';

/** Raises RunError for a run directory that was removed or moved away: writing derived files must not recreate it. */
export function requireRun(paths: RunPaths): void {
  if (existsSync(paths.record)) return;
  throw new RunError('the run directory is gone', { where: paths.dir, next: 'What it held is no longer passed on.' });
}
