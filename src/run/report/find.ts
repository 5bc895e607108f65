/** Resolves a name given to a report: a run or an experiment. */
import { RunError } from '../../core/errors.js';
import type { ReadSettings } from '../../schema/mark.js';
import { getPath } from '../../schema/paths.js';
import {
  listExperiments,
  readExperiment,
  type ExperimentRecord,
  type FoundExperiment,
  type RecordedRun,
} from '../experiment.js';
import { findRun, firstFew, searchFolders } from '../find.js';
import { isRunName, RunPaths } from '../paths.js';
import { readRecord } from '../record.js';

/** The experiment that a run is a cell of. */
export interface Membership {
  readonly experiment: string;
  /** Settings that differ from its baseline cell, or, without a baseline, between the cells. */
  readonly differs: Readonly<Record<string, unknown>>;
  /** Its baseline cell with that cell's own settings; null without a baseline, for the baseline itself, and where that has no settings yet. */
  readonly baseline: { readonly run_name: string; readonly settings: ReadSettings } | null;
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
    const record = readExperiment(baseExpDir, name);
    const cell = record?.cells.find((one) => one.run_name === runName);
    if (record === null || cell === undefined) continue;
    return { experiment: name, differs: cell.differs, baseline: baselineOf(record, cell, baseExpDir) };
  }
  return null;
}

function baselineOf(
  { baseline, cells }: ExperimentRecord,
  { run_name, axes }: RecordedRun,
  baseExpDir: string,
): Membership['baseline'] {
  if (baseline === null) return null;
  const wanted = Object.entries({ ...axes, ...baseline });
  const found = cells.find((one) => wanted.every(([axis, value]) => one.axes[axis] === value));
  if (found === undefined || found.run_name === run_name) return null;
  const settings = settingsOf(new RunPaths(baseExpDir, found.run_name));
  return settings === null ? null : { run_name: found.run_name, settings: (path) => getPath(settings, path) };
}

/** Null for a run that was not begun, or whose record cannot be read, which its own report says. */
function settingsOf(paths: RunPaths): Readonly<Record<string, unknown>> | null {
  try {
    return readRecord(paths)?.settings ?? null;
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    return null;
  }
}
