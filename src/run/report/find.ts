/** Resolves a name given to a report: a run or an experiment. */
import { RunError } from '../../core/errors.js';
import { listExperiments, readExperiment, type ExperimentRecord, type FoundExperiment } from '../experiment.js';
import { findRun, firstFew, searchFolders } from '../find.js';
import { isRunName, type RunPaths } from '../paths.js';

/** The experiment that a run is a cell of. */
export interface Membership {
  readonly experiment: string;
  /** Settings that differ from the experiment's base. */
  readonly differs: Readonly<Record<string, unknown>>;
}

export type Found =
  | { readonly kind: 'run'; readonly paths: RunPaths }
  | { readonly kind: 'experiment'; readonly baseExpDir: string; readonly record: ExperimentRecord };

/** A run by its name or folder, else the experiment with that name. Raises RunError when there is neither, or several. */
export function findReported(name: string, expDir: string): Found {
  const all = listExperiments(searchFolders(expDir));
  const experiments = all.filter((one) => one.name === name);
  if (!isRunName(name) || experiments.length === 0) return run(name, expDir, all);
  if (experiments.length > 1) {
    const where = experiments.map(({ baseExpDir }) => baseExpDir).join(', ');
    throw new RunError(`there are ${experiments.length} experiments named '${name}': in ${where}`, {
      next: 'Say which folder with --exp-dir.',
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
      next: `${error.next ?? ''} Experiments that were swept there: ${names}.`.trim(),
    });
  }
}

/** How a run differs from the base of the experiment that it is a cell of; null if it is not a cell. */
export function membershipOf({ baseExpDir, runName }: RunPaths): Membership | null {
  for (const { name } of listExperiments([baseExpDir])) {
    if (!runName.startsWith(`${name}__`)) continue;
    const cell = readExperiment(baseExpDir, name)?.cells.find((one) => one.run_name === runName);
    if (cell !== undefined) return { experiment: name, differs: cell.differs };
  }
  return null;
}
