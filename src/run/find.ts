/** Finding runs by name in the folders that runs lie in. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../core/errors.js';
import { checkRunName, isRunName, RunPaths } from './paths.js';

const DEFAULT_FOLDERS = [join('runs'), join('runs', 'tiny')];

/** Where runs are looked for: the folder given, else `APP__BASE_EXP_DIR`, else `runs` and `runs/tiny`. */
export function searchFolders(expDir: string | undefined, env: NodeJS.ProcessEnv = process.env): string[] {
  if (expDir !== undefined) return [expDir];
  const fromEnv = env['APP__BASE_EXP_DIR'];
  return fromEnv === undefined || fromEnv === '' ? [...DEFAULT_FOLDERS] : [fromEnv];
}

/** Every run in some folders, by name. */
export function listRuns(folders: readonly string[]): RunPaths[] {
  return folders.flatMap((folder) => {
    if (!existsSync(folder)) return [];
    return readdirSync(folder)
      .filter((name) => isRunName(name) && existsSync(join(folder, name, 'run.json')))
      .sort()
      .map((name) => new RunPaths(folder, name));
  });
}

/** The run of a name. Raises RunError when there is none, or one in each of several folders. */
export function findRun(
  name: string,
  expDir: string | undefined = undefined,
  env: NodeJS.ProcessEnv = process.env,
): RunPaths {
  checkRunName(name);
  const folders = searchFolders(expDir, env);
  const runs = listRuns(folders);
  const found = runs.filter((run) => run.runName === name);
  if (found.length === 1) return found[0];
  if (found.length > 1) {
    throw new RunError(`there are ${found.length} runs named '${name}': ${found.map((run) => run.dir).join(', ')}`, {
      next: 'Say which folder with --exp-dir.',
    });
  }
  const names = runs.map((run) => run.runName);
  const known = names.length === 0 ? 'There are no runs there.' : `There are: ${firstFew(names)}.`;
  throw new RunError(`there is no run named '${name}' in ${folders.join(' or ')}`, {
    next: `${known} Say another folder with --exp-dir.`,
  });
}

function firstFew(names: readonly string[]): string {
  const shown = names.slice(0, 8).join(', ');
  return names.length > 8 ? `${shown} and ${names.length - 8} more` : shown;
}
