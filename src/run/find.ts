/** Finds runs by name in the folders that hold runs. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { nearest } from '../core/nearest.js';
import { RunError } from '../core/errors.js';
import { checkRunName, isRunName, RunPaths } from './paths.js';

const DEFAULT_FOLDERS = [join('runs'), join('runs', 'tiny')];

/** Folders to look for runs in: the given one, else `APP__BASE_EXP_DIR`, else `runs` and `runs/tiny`. */
export function searchFolders(expDir: string | undefined, env: NodeJS.ProcessEnv = process.env): string[] {
  if (expDir !== undefined && expDir !== '') return [expDir];
  const fromEnv = env['APP__BASE_EXP_DIR'];
  return fromEnv === undefined || fromEnv === '' ? [...DEFAULT_FOLDERS] : [fromEnv];
}

/** Every run in the given folders, by name. Raises RunError when a folder cannot be read. */
export function listRuns(folders: readonly string[]): RunPaths[] {
  return folders.flatMap((folder) => {
    if (!existsSync(folder)) return [];
    return namesIn(folder)
      .filter((name) => isRunName(name) && hasRecord(join(folder, name, 'run.json')))
      .sort()
      .map((name) => new RunPaths(folder, name));
  });
}

/** The run with this name or this directory. Raises RunError when there is none, or when several folders have one. */
export function findRun(
  name: string,
  expDir: string | undefined = undefined,
  env: NodeJS.ProcessEnv = process.env,
): RunPaths {
  if (!isRunName(name) && existsSync(join(name, 'run.json'))) return RunPaths.ofDirectory(resolve(name));
  if (name.includes('/')) {
    throw new RunError('there is no run in this folder', { where: name, next: 'Name a run, or the folder of one.' });
  }
  checkRunName(name);
  const folders = searchFolders(expDir, env);
  const found = folders.map((folder) => new RunPaths(folder, name)).filter((paths) => hasRecord(paths.record));
  if (found.length === 1) return found[0];
  if (found.length > 1) {
    throw new RunError(`there are ${found.length} runs named '${name}': ${found.map((run) => run.dir).join(', ')}`, {
      next: 'Say which folder with --exp-dir.',
    });
  }
  const names = listRuns(folders).map((run) => run.runName);
  const close = nearest(name, names);
  const all = names.length === 0 ? 'There are no runs there.' : `There are: ${firstFew(names)}.`;
  const known = close === null ? all : `Did you mean '${close}'?`;
  throw new RunError(`there is no run named '${name}' in ${folders.join(' or ')}`, {
    next: `${known} Say another folder with --exp-dir.`,
  });
}

/** Whether there is a record, or may be one: in a folder that may not be entered, which reading it reports. */
function hasRecord(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'EACCES';
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (cause) {
    throw new RunError('cannot list the folder', { where: folder, next: 'Say another folder with --exp-dir.', cause });
  }
}

/** Names for a message: eight of them, and how many more there are. */
export function firstFew(names: readonly string[]): string {
  const shown = names.slice(0, 8).join(', ');
  return names.length > 8 ? `${shown} and ${names.length - 8} more` : shown;
}
