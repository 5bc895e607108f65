/** Writes a run's metrics as an event file into its directory, from the same rows as other tracking. */
import { appendFileSync, existsSync, mkdirSync, statSync, truncateSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { sleep, systemClock, type Clock } from '../../../core/clock.js';
import { RunError } from '../../../core/errors.js';
import { diskError, writeFileAtomic } from '../../../core/files.js';
import type { RunPaths } from '../../paths.js';
import type { RunRecord } from '../../record.js';
import { readJson } from '../../state.js';
import { markSchema, RowFollower } from '../rows.js';
import { requireRun } from '../shared.js';
import { episodeTable, IMAGE_KINDS, imageOf, shownEpisodes, type Cell } from '../shown_episodes.js';
import { eventEncoder, type EventEncoder, type StepImages, type Step } from './events.js';

const EVERY_MS = 5000;
/** Maximum number of episodes of an iteration. TensorBoard's page reads whole files. */
const MAX_EPISODES = 8;

const cursor = z.object({
  format: z.literal(1),
  /** The event file's name, and the number of its bytes that recorded rows cover. */
  file: z.string().regex(/^events\.out\.tfevents\.[\w.-]+$/),
  bytes: z.int().min(0),
  rows: z.array(markSchema),
});
type Cursor = z.output<typeof cursor>;

export interface TensorboardOptions {
  readonly paths: RunPaths;
  readonly record: RunRecord;
  /** Aborted when the run has ended. Content of its files up to then is still written. */
  readonly ending: AbortSignal;
  readonly clock?: Clock | undefined;
  readonly everyMs?: number | undefined;
}

/**
 * Keeps the event file up to date with the metrics until the run has ended. Returns the number of rows. Raises
 * RunError.
 */
export async function writeTensorboard(options: TensorboardOptions): Promise<number> {
  const { paths, record, ending, clock = systemClock, everyMs = EVERY_MS } = options;
  const encoder = await eventEncoder();
  const known = readCursor(paths);
  const state: Cursor = known ?? createEventFile(options, encoder);
  const follower = new RowFollower(paths.metrics, state.rows, () => record.attempts);
  let { bytes } = state;
  const file = join(paths.tensorboardDir, state.file);
  // Cuts the part that a crash left after the last recorded row, which is written again.
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
        encoder.step({ at: mark.at, step: iteration, scalars: metrics, ...imagesAndTables(paths, iteration) }),
      );
      bytes += append(file, Buffer.concat([...restart, ...events]));
      follower.confirm(rows[rows.length - 1]);
      writeCursor(paths, { ...state, bytes, rows: [...follower.marks] });
    }
  } finally {
    follower.close();
  }
}

/** The images of an iteration's episodes, and their texts as a table. */
function imagesAndTables(paths: RunPaths, iteration: number): Pick<Step, 'images' | 'tables'> {
  const all = shownEpisodes(paths, iteration, MAX_EPISODES);
  const images = all.flatMap(({ title, episodes }) =>
    IMAGE_KINDS.flatMap((kind): [string, StepImages][] => {
      const there = episodes.flatMap((episode) => imageOf(paths, episode[kind]) ?? []);
      const pngs = there.flatMap(({ read }) => read() ?? []);
      if (pngs.length === 0) return [];
      return [[`${title}/${kind}`, { width: there[0].width, height: there[0].height, pngs }]];
    }),
  );
  const tables = all.map((shown): [string, string[][]] => {
    const { columns, rows } = episodeTable(paths, shown);
    const textColumns = columns.flatMap((column, at) =>
      (IMAGE_KINDS as readonly string[]).includes(column) ? [] : [at],
    );
    return [`${shown.title}/table`, [columns, ...rows].map((row) => textColumns.map((at) => markdown(row[at])))];
  });
  return { images: Object.fromEntries(images), tables: Object.fromEntries(tables) };
}

/** A text as Markdown that shows it literally. */
function markdown(cell: Cell): string {
  if (typeof cell === 'object') return '';
  return String(cell)
    .replaceAll(/[\\`*_[\]#]/g, '\\$&')
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;');
}

/** Starts an event file. */
function createEventFile({ paths, record }: TensorboardOptions, encoder: EventEncoder): Cursor {
  const at = Math.floor(Date.parse(record.created_at) / 1000);
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

/** Null if there is no event file, or if it no longer matches its cursor. It is then written again. */
function readCursor(paths: RunPaths): Cursor | null {
  const value = readJson(paths.tensorboard);
  if (value === null) return null;
  const parsed = cursor.safeParse(value);
  if (!parsed.success) {
    throw new RunError('invalid TensorBoard state', {
      where: paths.tensorboard,
      next: `Remove it. The event file is then written again from the metrics.`,
    });
  }
  const size = statSync(join(paths.tensorboardDir, parsed.data.file), { throwIfNoEntry: false })?.size ?? 0;
  return size < parsed.data.bytes ? null : parsed.data;
}

function writeCursor(paths: RunPaths, value: Cursor): void {
  requireRun(paths);
  writeFileAtomic(paths.tensorboard, `${JSON.stringify(value)}\n`);
}
