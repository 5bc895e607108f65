/** Which runs an experiment consists of, beside them: `NAME.cells.json`, for those who look at the folder while it is being swept, or later. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { Experiment } from '../../config/experiment/load.js';
import { EditrlError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { readJson } from '../../run/state.js';

const SUFFIX = '.cells.json';

const axes = z.record(z.string(), z.string());
const recorded = z.object({
  experiment: z.string(),
  baseline: axes.nullable(),
  cells: z.array(z.object({ run_name: z.string(), axes })),
});
export type RecordedCells = z.output<typeof recorded>;

/** Writes them when a sweep begins, those that are not asked for included. Raises RunError where the disk refuses. */
export function recordCells({ name, baseline, cells }: Experiment, baseExpDir: string): void {
  const record: RecordedCells = {
    experiment: name,
    baseline: baseline === null ? null : { ...baseline },
    cells: cells.map(({ run_name, axes: values }) => ({ run_name, axes: { ...values } })),
  };
  writeFileAtomic(join(baseExpDir, `${name}${SUFFIX}`), `${JSON.stringify(record, null, 2)}\n`);
}

/** The names of such files in a folder's listing. */
export function cellsFiles(folder: string): string[] {
  return readdirSync(folder).filter((name) => name.endsWith(SUFFIX));
}

/** Null for a file that is none, or of another version. */
export function readCells(path: string): RecordedCells | null {
  try {
    return recorded.safeParse(readJson(path)).data ?? null;
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}
