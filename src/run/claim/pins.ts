/** Finds the checkpoints of a run that others start from, which the run keeps while it trains on. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../../core/errors.js';
import { isRunName, RunPaths } from '../paths.js';
import { readRecord, type PlainObject } from '../record.js';

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

/** How the name of the folder begins in which a fork is made; that of the fork follows. */
export const FORKING = '.forking-';

/**
 * The folders of all checkpoints of runs beside this one that are forks, or may be since their record cannot be read: each begins with the files of a
 * checkpoint of another run. Those of a fork that is being made are there twice, for it may be moved to its place at any moment. They may be gone when
 * they are looked at.
 */
export function checkpointsOfForks({ baseExpDir, runName }: RunPaths): string[] {
  const names = readdirSync(baseExpDir);
  const whole = names
    .filter((name) => isRunName(name) && name !== runName)
    .map((name) => new RunPaths(baseExpDir, name))
    .filter(mayBeFork);
  const underWay = names
    .filter((name) => name.startsWith(FORKING))
    .map((name) => name.slice(FORKING.length))
    .filter(isRunName)
    .map((name) => [new RunPaths(baseExpDir, name, join(baseExpDir, FORKING + name, name)), name] as const);
  return [
    ...underWay.flatMap(([half, name]) => {
      const [here, there] = [half, new RunPaths(baseExpDir, name)].map(({ checkpointsDir }) => checkpointsDir);
      return [...checkpointsIn(here).flatMap((one) => [join(here, one), join(there, one)]), ...pathsIn(there)];
    }),
    ...whole.flatMap(({ checkpointsDir }) => pathsIn(checkpointsDir)),
  ];
}

function mayBeFork(paths: RunPaths): boolean {
  try {
    return readRecord(paths)?.fork !== undefined;
  } catch (error) {
    if (error instanceof RunError) return true;
    throw error;
  }
}

const pathsIn = (folder: string): string[] => checkpointsIn(folder).map((name) => join(folder, name));

function checkpointsIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (['ENOENT', 'ENOTDIR'].includes(code)) return [];
    throw error;
  }
}

function parentsOf(paths: RunPaths): readonly PlainObject[] {
  try {
    return readRecord(paths)?.parents ?? [];
  } catch (error) {
    if (error instanceof RunError) return [];
    throw error;
  }
}
