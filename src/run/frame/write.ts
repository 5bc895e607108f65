/** Writes the records of runs as parquet files, one table each, whose types do not depend on what was recorded. */
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { EditrlError, must, RunError } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import { scanLines } from '../../core/log/reader.js';
import { ParquetTable, type ColumnTypes } from '../../core/parquet.js';
import { stagingFolder, sweepStaging } from '../../core/staging.js';
import { getPath } from '../../schema/paths.js';
import { listEpisodeFiles } from '../episodes.js';
import { parseLine } from '../journal.js';
import { JudgementFiles } from '../judgement_files.js';
import { RunPaths } from '../paths.js';
import { readRecord } from '../record.js';
import { membershipOf, type Found } from '../report/find.js';
import {
  AXIS,
  ownerRow,
  perTable,
  renamed,
  TABLES,
  type FrameTable,
  type RecordedLine,
  type RowOwner,
  type TableName,
} from './tables.js';

const STAGING = '.framing-';

/** A file that was written. */
export interface WrittenTable {
  readonly path: string;
  readonly rows: number;
  readonly columns: readonly string[];
}

export interface WrittenFrame {
  readonly folder: string;
  readonly tables: Readonly<Record<TableName, WrittenTable>>;
  /** Runs of the experiment that are in none of the tables, and why; null for one that was never begun. */
  readonly left_out: readonly { readonly run_name: string; readonly problem: string | null }[];
}

/** The usual place of the files. */
export function frameFolder(found: Found): string {
  return found.kind === 'run'
    ? join(found.paths.dir, 'frame')
    : join(found.baseExpDir, `${found.record.experiment}.frame`);
}

/**
 * Writes `metrics.parquet`, `episodes.parquet` and `judgements.parquet` into a folder, over those of before. A table without rows has all its fixed
 * columns. Records are read twice, first for the columns, and only a part of them is in memory. Raises RunError when the disk refuses, and for a run
 * whose records cannot be read; a cell of an experiment is then left out.
 */
export function writeFrame(found: Found, folder: string): WrittenFrame {
  const { runs, leftOut, axes } = surveyed(found);
  sweepStaging(folder, STAGING);
  const staging = stagingFolder(folder, STAGING);
  try {
    mkdirSync(staging, { recursive: true });
    const tables = perTable((name) => writeTable(name, runs, axes, staging));
    return {
      folder,
      tables: perTable((name) => {
        const path = join(folder, basename(tables[name].path));
        renameSync(tables[name].path, path);
        return { ...tables[name], path };
      }),
      left_out: leftOut,
    };
  } catch (cause) {
    throw cause instanceof Error && 'syscall' in cause ? diskError(folder, cause) : cause;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** A run, with what its records held when they were looked at. A run that trains on grows meanwhile; what is added is left for the next time. */
interface SurveyedRun {
  readonly paths: RunPaths;
  readonly owner: RowOwner;
  readonly tables: Readonly<Record<TableName, { readonly names: ReadonlySet<string>; readonly rows: number }>>;
}

interface Surveyed {
  readonly runs: readonly SurveyedRun[];
  readonly leftOut: WrittenFrame['left_out'];
  readonly axes: readonly string[];
}

function surveyed(found: Found): Surveyed {
  if (found.kind === 'run') {
    const { paths } = found;
    const membership = membershipOf(paths);
    const cell = membership === null ? null : cellName(membership.experiment, paths.runName);
    return { runs: [survey(paths, cell, {})], leftOut: [], axes: [] };
  }
  const { baseExpDir, record } = found;
  const runs: SurveyedRun[] = [];
  const leftOut: { run_name: string; problem: string | null }[] = [];
  for (const { run_name, axes, refused } of record.cells) {
    const paths = new RunPaths(baseExpDir, run_name);
    try {
      if (refused !== null) leftOut.push({ run_name, problem: refused });
      else if (readRecord(paths) === null) leftOut.push({ run_name, problem: null });
      else runs.push(survey(paths, cellName(record.experiment, run_name), axes));
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      leftOut.push({ run_name, problem: error.toText() });
    }
  }
  return { runs, leftOut, axes: [...new Set(record.cells.flatMap(({ axes }) => Object.keys(axes)))] };
}

/** A cell's name without its experiment's. */
function cellName(experiment: string, runName: string): string {
  return runName.startsWith(`${experiment}__`) ? runName.slice(experiment.length + 2) : runName;
}

function survey(paths: RunPaths, cell: string | null, axes: RowOwner['axes']): SurveyedRun {
  const { settings } = must(readRecord(paths), `the record of ${paths.runName}`);
  const seed = getPath(settings, 'seed');
  const tables = perTable((name) => {
    const names = new Set<string>();
    let rows = 0;
    SOURCES[name](paths, (line) => {
      rows++;
      for (const column of Object.keys(TABLES[name].named(line))) names.add(column);
    });
    return { names, rows };
  });
  return {
    paths,
    owner: { run: paths.runName, cell, seed: Number.isSafeInteger(seed) ? (seed as number) : null, axes },
    tables,
  };
}

type OnLine = (line: RecordedLine, bytes: number) => void;

/** Where the lines of each table stand, in their order. */
const SOURCES: Readonly<Record<TableName, (paths: RunPaths, onLine: OnLine) => void>> = {
  metrics: ({ metrics }, onLine) => scanRecords(metrics, onLine),
  episodes: (paths, onLine) => {
    for (const { path } of listEpisodeFiles(paths)) scanRecords(path, onLine);
  },
  judgements: ({ judgements }, onLine) => {
    let [last, number] = ['', 0];
    new JudgementFiles(judgements).scanAll((text, _place, file) => {
      number = file === last ? number + 1 : 1;
      last = file;
      onLine(parseLine(text, file, number), text.length);
    });
  },
};

function scanRecords(path: string, onLine: OnLine): void {
  let number = 0;
  scanLines(path, (text) => onLine(parseLine(text, path, ++number), text.length));
}

function writeTable(
  name: TableName,
  runs: readonly SurveyedRun[],
  axes: readonly string[],
  folder: string,
): WrittenTable {
  const { columns, named, row }: FrameTable = TABLES[name];
  const { run, cell, seed, ...own } = columns;
  const ofAxes = Object.fromEntries(axes.map((axis) => [`${AXIS}${axis}`, 'text' as const]));
  const fixed: ColumnTypes = { run, cell, seed, ...ofAxes, ...own };
  // A trainer in another language may call a metric what a column is called.
  const columnOf = (one: string): string => (Object.hasOwn(fixed, one) ? `${name}/${one}` : one);
  const all = [...new Set(runs.flatMap(({ tables }) => [...tables[name].names]))].sort();
  const types: ColumnTypes = { ...fixed, ...Object.fromEntries(all.map((one) => [columnOf(one), 'number'])) };
  const path = join(folder, `${name}.parquet`);
  const table = new ParquetTable(path, types);
  for (const { paths, owner, tables } of runs) {
    const common = ownerRow(owner);
    let left = tables[name].rows;
    SOURCES[name](paths, (line, bytes) => {
      if (left === 0) return;
      left--;
      table.append([common, row(line), renamed(named(line), columnOf)], bytes);
    });
    if (left > 0) throw changed(paths);
  }
  table.finish();
  return { path, rows: table.count, columns: Object.keys(types) };
}

function changed({ dir }: RunPaths): RunError {
  return new RunError('the run went back to an earlier iteration while it was read', {
    where: dir,
    next: 'Write the same command again.',
  });
}
