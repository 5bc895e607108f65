/** `track/wandb.json`: how far a W&B server has a run. It is written after the server has taken something, so that nothing is ever skipped. */
import { z } from 'zod';
import { RunError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import type { RunPaths } from '../../run/paths.js';
import { readJson } from '../../run/state.js';
import { requireRun } from '../require_run.js';
import { markSchema } from '../rows.js';

const cursor = z.object({
  format: z.literal(1),
  /** Where the run is. `entity` is the server's own name of it. */
  base_url: z.string(),
  entity: z.string(),
  project: z.string(),
  /** Its id there; absent where that is the run_name. */
  run: z.string().optional(),
  /** When the run directory was made: a run made anew under its name is another one. */
  created_at: z.string(),
  /** What the server had under this name before: lines of each file, and the first step. */
  base: z.object({ history: z.int(), events: z.int(), output: z.int(), step: z.int() }),
  /** Rows of `metrics.jsonl` that it has. */
  rows: z.array(markSchema),
  /** Lines of `track/system.jsonl`. */
  events: z.object({ lines: z.int(), bytes: z.int() }),
  /** Lines of output, and up to where in which attempt's log they lead. */
  output: z.object({ lines: z.int(), attempt: z.int(), bytes: z.int() }),
  /** The last value of each metric, in W&B's form of JSON, which has numbers that are not finite. */
  summary: z.string(),
  /** The last iteration whose row it has; -1 before the first. */
  iteration: z.int(),
  /** The last iteration whose images and tables it has; -1 before the first. */
  media: z.int(),
  /** The code that the run was said to have ended with; null while it goes on. */
  ended: z.int().nullable(),
});

export type WandbCursor = z.output<typeof cursor>;

/** Null where nothing has been sent. Raises RunError for a file of another version. */
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

/** Raises RunError where the disk refuses, or the run directory is gone, which must not come back. */
export function writeWandbCursor(paths: RunPaths, value: WandbCursor): void {
  requireRun(paths);
  writeFileAtomic(paths.wandb, `${JSON.stringify(value)}\n`);
}
