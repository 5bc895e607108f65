/** Finds the checkpoints of a run that other runs depend on, which the run must keep. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../../core/errors.js';
import { isRunName, RunPaths } from '../paths.js';
import { readRecord, type PlainObject } from '../record.js';

/**
 * The iterations of a run that other runs in the same folder have pinned. The pins are in the records of those runs, so they disappear with them. An
 * unreadable record pins nothing. Only checkpoints from before the last start can be pinned, because runs depend on finished runs. For newer ones no
 * record is read.
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

/** Prefix of the temporary folder of a fork, before its name. */
export const FORKING = '.forking-';

/**
 * The checkpoint folders of sibling runs that are forks, or may be because their record is unreadable. Each shares files with a checkpoint of another
 * run. Folders of an unfinished fork are listed under both of its names, because it may be renamed at any moment. Listed folders may disappear.
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
