/** Which checkpoints of a run others start from: a run that trains on keeps these. */
import { readdirSync } from 'node:fs';
import { RunError } from '../core/errors.js';
import { isRunName, RunPaths } from './paths.js';
import { readRecord, type PlainObject } from './record.js';

/**
 * Those of a run's iterations that runs beside it have pinned. They are found in those runs' own records, so that nothing of them is
 * written into this run's folder or left there when they are gone; a record that cannot be read pins nothing. Only what was there
 * before the run was last started can be pinned, since runs start from finished ones: for others no record is read.
 */
export function pinnedByOthers(paths: RunPaths, iterations: readonly number[]): ReadonlySet<number> {
  const began = readRecord(paths)?.attempts.at(-1)?.from_iteration ?? 0;
  if (!iterations.some((iteration) => iteration <= began)) return new Set();
  return new Set(
    readdirSync(paths.baseExpDir)
      .filter((name) => isRunName(name) && name !== paths.runName)
      .flatMap((name) => parentsOf(new RunPaths(paths.baseExpDir, name)))
      .flatMap(({ run, iteration }) => (run === paths.runName && typeof iteration === 'number' ? [iteration] : [])),
  );
}

function parentsOf(paths: RunPaths): readonly PlainObject[] {
  try {
    return readRecord(paths)?.parents ?? [];
  } catch (error) {
    if (error instanceof RunError) return [];
    throw error;
  }
}
