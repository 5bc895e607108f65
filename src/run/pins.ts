/** Finds the checkpoints of a run that others start from, which the run keeps while it trains on. */
import { readdirSync } from 'node:fs';
import { RunError } from '../core/errors.js';
import { isRunName, RunPaths } from './paths.js';
import { readRecord, type PlainObject } from './record.js';

/**
 * The iterations of a run that other runs of the same folder have pinned. They are found in those runs' own records, so that this run's folder holds
 * nothing of theirs that could outlive them; an unreadable record pins nothing. Only what existed before the run was last started can be pinned,
 * since runs start from finished runs: no record is read for others.
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
