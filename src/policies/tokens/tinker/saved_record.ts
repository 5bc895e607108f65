/** `remote.json` of a checkpoint: what a training service has saved for it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../../../core/errors.js';
import { SERVED_FILE } from '../../../models/files.js';

const record = z.object({
  /** The path that the service gave for weights and optimizer. */
  path: z.string().min(1),
  /** What model it is of, as settings say it. */
  model: z.json(),
  lineage: z.string().min(1),
  /** Lineages of what was sampled with before: answers that the next iteration learns from may be of these. */
  sampled_from: z.array(z.string().min(1)).default([]),
});

export type SavedRecord = z.input<typeof record>;

/** The path of what the service has saved for a checkpoint; null where its folder does not tell. */
export function pathIn(folder: string): string | null {
  try {
    return readRecord(join(folder, SERVED_FILE)).path;
  } catch (error) {
    if (error instanceof CheckpointError) return null;
    throw error;
  }
}

/** Raises CheckpointError. */
export function readRecord(file: string): z.output<typeof record> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new CheckpointError('does not name what the training service has saved', { where: file, cause });
  }
  try {
    return record.parse(JSON.parse(text));
  } catch (cause) {
    throw new CheckpointError('is not what this program writes', { where: file, cause });
  }
}
