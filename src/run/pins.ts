/** Finds the checkpoints of a run that others start from, which the run keeps while it trains on. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../core/errors.js';
import { isRunName, RunPaths } from './paths.js';
import { readRecord, type PlainObject, type RunRecord } from './record.js';

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

/** The folders of all checkpoints of runs beside this one that are forks: each begins with the files of a checkpoint of another run. */
export function checkpointsOfForks(paths: RunPaths): string[] {
  return readdirSync(paths.baseExpDir)
    .filter((name) => isRunName(name) && name !== paths.runName)
    .map((name) => new RunPaths(paths.baseExpDir, name))
    .filter((other) => recordOf(other)?.fork !== undefined && existsSync(other.checkpointsDir))
    .flatMap(({ checkpointsDir }) => readdirSync(checkpointsDir).map((name) => join(checkpointsDir, name)));
}

function recordOf(paths: RunPaths): RunRecord | null {
  try {
    return readRecord(paths);
  } catch (error) {
    if (error instanceof RunError) return null;
    throw error;
  }
}

function parentsOf(paths: RunPaths): readonly PlainObject[] {
  return recordOf(paths)?.parents ?? [];
}
