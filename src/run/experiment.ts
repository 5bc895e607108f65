/**
 * `<experiment>.experiment.json` beside the runs: which runs an experiment has, and by what they differ, so that it can be shown without its
 * file being evaluated. Every sweep writes it anew.
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
  /** Its value of each axis; of a run that cells start from, those that reach it. */
  axes: words,
  /** The runs that it starts from, by name. */
  parents: z.array(z.string()),
  /** Settings that differ from its baseline cell, or, without one, that are not the same in all cells. */
  differs: z.record(z.string(), z.unknown()),
  /** Why its folder is not this experiment's, such as other settings; null where it is, or there is none. */
  refused: z.string().nullable(),
});

const experimentRecord = z.object({
  format: z.literal(1),
  experiment: z.string(),
  /** The file that it was evaluated from, absolute. */
  file: z.string(),
  baseline: words.nullable(),
  /** The axis whose values are configs; null where one config is the base of all cells. */
  base_axis: z.string().nullable(),
  /** The config that it imports as the base of all cells, absolute; absent where its file does not name one, and in older records. */
  base_file: z.string().optional(),
  /** The terms that cells are compared by; absent where there are none, and in older records. */
  measure: z.array(z.record(z.string(), z.unknown())).optional(),
  cells: z.array(recordedRun),
  /** The runs that cells start from and that are no cells themselves. */
  parents: z.array(recordedRun),
});

export type RecordedRun = Readonly<z.output<typeof recordedRun>>;
export type ExperimentRecord = Readonly<z.output<typeof experimentRecord>>;

/** An experiment that a sweep was made of in a folder of runs. */
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

/** Reads the record; null where there is none. Raises RunError when it is not one that this version can read. */
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

/** The experiments of some folders, by name. Raises RunError when a folder cannot be read. */
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

/** Where the record of an experiment lies. */
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
