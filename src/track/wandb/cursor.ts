/** `track/wandb.json`: how much of a run a W&B server has. It is written after the server has accepted something, so that nothing is ever skipped. */
import { z } from 'zod';
import { RunError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import type { RunPaths } from '../../run/paths.js';
import { readJson } from '../../run/state.js';
import { requireRun } from '../require_run.js';
import { markSchema } from '../rows.js';

const cursor = z.object({
  format: z.literal(1),
  /** Where the run is on W&B. `entity` is the name as the server spells it. */
  base_url: z.string(),
  entity: z.string(),
  project: z.string(),
  /** The id that was asked for, and the id that the run has there: another one if somebody else writes to the first. */
  asked: z.string(),
  run: z.string(),
  /** When the run directory was created: a run recreated under its name is a different one. */
  created_at: z.string(),
  /** Rows of `metrics.jsonl` that it has. */
  rows: z.array(markSchema),
  /** Lines of `track/system.jsonl`. */
  events: z.object({ lines: z.int(), bytes: z.int() }),
  /** Lines of output, and the position in an attempt's log that they reach. */
  output: z.object({ lines: z.int(), attempt: z.int(), bytes: z.int() }),
  /** The last value of each metric, in W&B's dialect of JSON, which allows numbers that are not finite. */
  summary: z.string(),
  /** The last iteration whose row it has; -1 before the first. */
  iteration: z.int(),
  /** The last iteration whose images and tables it has; -1 before the first. */
  media: z.int(),
  /** The exit code that W&B was given for the run; null while it is running. */
  ended: z.int().nullable(),
});

export type WandbCursor = z.output<typeof cursor>;

/** Null if nothing has been sent. Raises RunError for a file of another version. */
export function readWandbCursor(paths: RunPaths): WandbCursor | null {
  const value = readJson(paths.wandb);
  if (value === null) return null;
  const parsed = cursor.safeParse(value);
  if (parsed.success) return parsed.data;
  const [{ path, message }] = parsed.error.issues;
  throw new RunError(`not what this version of editrl notes of W&B: ${path.join('.')}: ${message}`, {
    where: paths.wandb,
    next: 'Use the version that wrote it, or remove the file: the rows are then sent again, in their places.',
  });
}

/** Raises RunError when the disk refuses, or when the run directory is gone, which must not be recreated. */
export function writeWandbCursor(paths: RunPaths, value: WandbCursor): void {
  requireRun(paths);
  writeFileAtomic(paths.wandb, `${JSON.stringify(value)}\n`);
}
