/** Writes a run's metrics as an event file in its directory, from the same rows as all other tracking. */
import { appendFileSync, existsSync, mkdirSync, statSync, truncateSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import { RunError } from '../../core/errors.js';
import { diskError, writeFileAtomic } from '../../core/files.js';
import type { RunPaths } from '../../run/paths.js';
import type { RunRecord } from '../../run/record.js';
import { readJson } from '../../run/state.js';
import { markSchema, RowFollower } from '../rows.js';
import { requireRun } from '../require_run.js';
import { eventEncoder, type EventEncoder } from './events.js';

const EVERY_MS = 5000;

const cursor = z.object({
  format: z.literal(1),
  /** The event file's name, and how many of its bytes the rows account for. */
  file: z.string().regex(/^events\.out\.tfevents\.[\w.-]+$/),
  bytes: z.int().min(0),
  rows: z.array(markSchema),
});
type Cursor = z.output<typeof cursor>;

export interface TensorboardOptions {
  readonly paths: RunPaths;
  readonly record: RunRecord;
  /** Aborted when the run has ended: what is in its files by then is still written. */
  readonly ending: AbortSignal;
  readonly clock?: Clock;
  readonly everyMs?: number;
}

/** Keeps the event file up to date with the metrics until the run has ended; returns how many rows it has. Raises RunError. */
export async function writeTensorboard(options: TensorboardOptions): Promise<number> {
  const { paths, record, ending, clock = systemClock, everyMs = EVERY_MS } = options;
  const encoder = await eventEncoder();
  const known = readCursor(paths);
  const state: Cursor = known ?? begun(paths, record, encoder);
  const follower = new RowFollower(paths.metrics, state.rows, () => record.attempts);
  let { bytes } = state;
  const file = join(paths.tensorboardDir, state.file);
  // Cuts what a crash left after the last recorded row; that row is written again.
  if (statSync(file).size > bytes) truncateSync(file, bytes);
  try {
    for (;;) {
      requireRun(paths);
      const last = ending.aborted;
      const before = follower.confirmed;
      const rows = follower.next();
      const [first] = rows;
      if (first === undefined) {
        if (last) return follower.confirmed;
        await sleep(clock, everyMs, ending);
        continue;
      }
      const restart = first.index < before ? [encoder.restart(first.mark.at, first.iteration)] : [];
      const events = rows.map(({ iteration, metrics, mark }) =>
        encoder.scalars({ at: mark.at, step: iteration, scalars: metrics }),
      );
      bytes += append(file, Buffer.concat([...restart, ...events]));
      follower.confirm(rows[rows.length - 1]);
      write(paths, { ...state, bytes, rows: [...follower.marks] });
    }
  } finally {
    follower.close();
  }
}

/** Starts an event file. */
function begun(paths: RunPaths, { created_at }: RunRecord, encoder: EventEncoder): Cursor {
  const at = Math.floor(Date.parse(created_at) / 1000);
  const file = `events.out.tfevents.${at}.${hostname().replaceAll(/[^\w.-]/g, '_')}`;
  const path = join(paths.tensorboardDir, file);
  try {
    mkdirSync(paths.tensorboardDir, { recursive: true });
    if (existsSync(path)) truncateSync(path, 0);
  } catch (cause) {
    throw diskError(path, cause);
  }
  return { format: 1, file, bytes: append(path, encoder.version(at)), rows: [] };
}

function append(path: string, bytes: Uint8Array): number {
  try {
    appendFileSync(path, bytes);
  } catch (cause) {
    throw diskError(path, cause);
  }
  return bytes.length;
}

/** Null if there is no event file, or it no longer matches its record: it is then written again. */
function readCursor(paths: RunPaths): Cursor | null {
  const value = readJson(paths.tensorboard);
  if (value === null) return null;
  const parsed = cursor.safeParse(value);
  if (!parsed.success) {
    throw new RunError('not what this version of editrl notes of the event file', {
      where: paths.tensorboard,
      next: `Remove it: the event file is then made again from the metrics.`,
    });
  }
  const size = statSync(join(paths.tensorboardDir, parsed.data.file), { throwIfNoEntry: false })?.size ?? 0;
  return size < parsed.data.bytes ? null : parsed.data;
}

function write(paths: RunPaths, value: Cursor): void {
  requireRun(paths);
  writeFileAtomic(paths.tensorboard, `${JSON.stringify(value)}\n`);
}
