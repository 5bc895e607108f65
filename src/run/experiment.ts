/**
 * `<experiment>.experiment.json` beside the runs: which runs an experiment has and how they differ, so that it can be shown without evaluating its
 * file. Every sweep rewrites it.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { isRunName } from './paths.js';
import { readJson } from './state.js';

const SUFFIX = '.experiment.json';

const words = z.record(z.string(), z.string());
const recordedRun = z.object({
  run_name: z.string().refine(isRunName, 'cannot name a run'),
  /** Its value on each axis; for a run that cells start from, the values of those cells. */
  axes: words,
  /** Names of the runs that it starts from. */
  parents: z.array(z.string()),
  /** Settings that differ from its baseline cell, or, without a baseline, that are not the same in all cells. */
  differs: z.record(z.string(), z.unknown()),
  /** Why the folder does not belong to this experiment, such as other settings; null if it does, or if there is no folder. */
  refused: z.string().nullable(),
});

const experimentRecord = z.object({
  format: z.literal(1),
  experiment: z.string(),
  /** Absolute path of the file that it was evaluated from. */
  file: z.string(),
  baseline: words.nullable(),
  /** The axis whose values are configs; null if all cells share one base config. */
  base_axis: z.string().nullable(),
  /** Absolute path of the config that it imports as the base of all cells; absent if its file names none, and in older records. */
  base_file: z.string().optional(),
  /** The terms that cells are compared by; absent if there are none, and in older records. */
  measure: z.array(z.record(z.string(), z.unknown())).optional(),
  cells: z.array(recordedRun),
  /** Runs that cells start from and that are not cells themselves. */
  parents: z.array(recordedRun),
});

export type RecordedRun = Readonly<z.output<typeof recordedRun>>;
export type ExperimentRecord = Readonly<z.output<typeof experimentRecord>>;

/** An experiment that was swept in a folder of runs. */
export interface FoundExperiment {
  readonly name: string;
  readonly baseExpDir: string;
}

/** Writes the record. Raises RunError when the disk refuses. */
export function writeExperiment(baseExpDir: string, record: Omit<ExperimentRecord, 'format'>): void {
  writeFileAtomic(
    experimentFile(baseExpDir, record.experiment),
    `${JSON.stringify({ format: 1, ...record }, null, 2)}\n`,
  );
}

/** Reads the record; null if there is none. Raises RunError when this version cannot read it. */
export function readExperiment(baseExpDir: string, name: string): ExperimentRecord | null {
  const path = experimentFile(baseExpDir, name);
  const value = readJson(path);
  if (value === null) return null;
  const parsed = experimentRecord.safeParse(value);
  if (parsed.success) return parsed.data;
  const [{ path: field, message }] = parsed.error.issues;
  throw new RunError(`not the record of an experiment: ${field.join('.')}: ${message}`, {
    where: path,
    next: 'It was written by another version of editrl, or changed since; `editrl sweep` of the experiment writes it anew.',
  });
}

/** The experiments of the given folders, by name. Raises RunError when a folder cannot be read. */
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

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (cause) {
    throw new RunError('cannot list the folder', { where: folder, next: 'Say another folder with --exp-dir.', cause });
  }
}
