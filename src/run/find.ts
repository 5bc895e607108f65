/** Finds runs and experiments by name in directories of runs. */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { nearest } from '../core/nearest.js';
import { checkRunName, isRunName, RunPaths } from './paths.js';
import { readJson } from './state.js';

const DEFAULT_FOLDERS = [join('runs'), join('runs', 'tiny')];

/** Directories of runs: the given one, else `APP__BASE_EXP_DIR`, else `runs` and `runs/tiny`. */
export function searchFolders(expDir: string | undefined, env: NodeJS.ProcessEnv = process.env): string[] {
  if (expDir !== undefined && expDir !== '') return [expDir];
  const fromEnv = env['APP__BASE_EXP_DIR'];
  return fromEnv === undefined || fromEnv === '' ? [...DEFAULT_FOLDERS] : [fromEnv];
}

/** Every run in the given folders, by name. Raises RunError for an unreadable folder. */
export function listRuns(folders: readonly string[]): RunPaths[] {
  return folders.flatMap((folder) => {
    if (!existsSync(folder)) return [];
    return namesIn(folder)
      .filter((name) => isRunName(name) && hasRecord(join(folder, name, 'run.json')))
      .sort()
      .map((name) => new RunPaths(folder, name));
  });
}

/** The run with this name or folder. Raises RunError if there is none or several. */
export function findRun(
  name: string,
  expDir: string | undefined = undefined,
  env: NodeJS.ProcessEnv = process.env,
): RunPaths {
  if (!isRunName(name) && existsSync(join(name, 'run.json'))) return RunPaths.ofDirectory(resolve(name));
  if (name.includes('/')) {
    throw new RunError('no run in this folder', { where: name, next: 'Name a run, or the folder of one.' });
  }
  checkRunName(name);
  const folders = searchFolders(expDir, env);
  const found = folders.map((folder) => new RunPaths(folder, name)).filter((paths) => hasRecord(paths.record));
  if (found.length === 1) return found[0];
  if (found.length > 1) {
    throw new RunError(`${found.length} runs are named '${name}': ${found.map((run) => run.dir).join(', ')}`, {
      next: 'Choose a directory with --exp-dir.',
    });
  }
  const names = listRuns(folders).map((run) => run.runName);
  const close = nearest(name, names);
  const all = names.length === 0 ? 'There are no runs.' : `Runs: ${firstFew(names)}.`;
  const known = close === null ? all : `Did you mean '${close}'?`;
  throw new RunError(`no run named '${name}' in ${folders.join(' or ')}`, {
    next: `${known} Choose another directory with --exp-dir.`,
  });
}

/** Whether there is or may be a record. A folder without access permission counts, and reading it reports the error. */
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
    throw new RunError('cannot list the folder', {
      where: folder,
      next: 'Choose another directory with --exp-dir.',
      cause,
    });
  }
}

/** Names for a message: at most eight, and the number of others. */
export function firstFew(names: readonly string[]): string {
  const shown = names.slice(0, 8).join(', ');
  return names.length > 8 ? `${shown} and ${names.length - 8} more` : shown;
}

const SUFFIX = '.experiment.json';

const words = z.record(z.string(), z.string());
const recordedRun = z.object({
  run_name: z.string().refine(isRunName, 'is not a valid run name'),
  /** The value on each axis. For a parent of cells, the values of those cells. */
  axes: words,
  /** Names of its parent runs. */
  parents: z.array(z.string()),
  /** Settings that differ from the baseline cell or, without a baseline, between cells. */
  differs: z.record(z.string(), z.unknown()),
  /** The reason why the folder does not belong to this experiment, such as other settings. Null if it does, or if there is no folder. */
  refused: z.string().nullable(),
});

const experimentRecord = z.object({
  format: z.literal(1),
  experiment: z.string(),
  /** Absolute path of the experiment file. */
  file: z.string(),
  baseline: words.nullable(),
  /** The axis whose values are configs. Null if all cells share one base config. */
  base_axis: z.string().nullable(),
  /** Absolute path of the base config of all cells. Absent if there is none. */
  base_file: z.string().optional(),
  /** The terms for comparing cells. Absent if there are none. */
  measure: z.array(z.record(z.string(), z.unknown())).optional(),
  cells: z.array(recordedRun),
  /** Parents of cells that are not cells themselves. */
  parents: z.array(recordedRun),
});

export type RecordedRun = Readonly<z.output<typeof recordedRun>>;
export type ExperimentRecord = Readonly<z.output<typeof experimentRecord>>;

/** A swept experiment in a directory of runs. */
export interface FoundExperiment {
  readonly name: string;
  readonly baseExpDir: string;
}

/** Writes the record. Raises RunError for a disk error. */
export function writeExperiment(baseExpDir: string, record: Omit<ExperimentRecord, 'format'>): void {
  writeFileAtomic(
    experimentFile(baseExpDir, record.experiment),
    `${JSON.stringify({ format: 1, ...record }, null, 2)}\n`,
  );
}

/** Reads the record. Null if there is none. Raises RunError for an invalid record. */
export function readExperiment(baseExpDir: string, name: string): ExperimentRecord | null {
  const path = experimentFile(baseExpDir, name);
  const value = readJson(path);
  if (value === null) return null;
  const parsed = experimentRecord.safeParse(value);
  if (parsed.success) return parsed.data;
  const [{ path: field, message }] = parsed.error.issues;
  throw new RunError(`invalid experiment record: ${field.join('.')}: ${message}`, {
    where: path,
    next: 'Another version of editrl wrote it, or it was edited. `editrl sweep` of the experiment replaces it.',
  });
}

/** The experiments of the given folders, by name. Raises RunError for an unreadable folder. */
export function listExperiments(folders: readonly string[]): FoundExperiment[] {
  return folders.flatMap((baseExpDir) => {
    if (!existsSync(baseExpDir)) return [];
    return namesIn(baseExpDir)
      .filter((name) => name.endsWith(SUFFIX))
      .map((name) => ({ name: name.slice(0, -SUFFIX.length), baseExpDir }))
      .filter(({ name }) => isRunName(name))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  });
}

/** Path of an experiment's record. */
export function experimentFile(baseExpDir: string, name: string): string {
  return join(baseExpDir, `${name}${SUFFIX}`);
}

export type Found =
  | { readonly kind: 'run'; readonly paths: RunPaths }
  | { readonly kind: 'experiment'; readonly baseExpDir: string; readonly record: ExperimentRecord };

/** The run with this name or folder, else the experiment with this name. Raises RunError if there is neither, or several. */
export function findReported(name: string, expDir: string): Found {
  const all = listExperiments(searchFolders(expDir));
  const experiments = all.filter((one) => one.name === name);
  if (!isRunName(name) || experiments.length === 0) return run(name, expDir, all);
  if (experiments.length > 1) {
    const where = experiments.map(({ baseExpDir }) => baseExpDir).join(', ');
    throw new RunError(`${experiments.length} experiments are named '${name}', in ${where}`, {
      next: 'Choose a directory with --exp-dir.',
    });
  }
  const [{ baseExpDir }] = experiments;
  const record = readExperiment(baseExpDir, name);
  return record === null ? run(name, expDir, all) : { kind: 'experiment', baseExpDir, record };
}

function run(name: string, expDir: string, experiments: readonly FoundExperiment[]): Found {
  try {
    return { kind: 'run', paths: findRun(name, expDir === '' ? undefined : expDir) };
  } catch (error) {
    if (!(error instanceof RunError) || experiments.length === 0) throw error;
    const names = firstFew(experiments.map((one) => one.name));
    throw new RunError(error.message, {
      next: `${error.next ?? ''} Swept experiments: ${names}.`.trim(),
    });
  }
}
