/**
 * Reads an experiment from its run directories: the state of each run, and the result table. Needs neither the
 * experiment's file nor a lock.
 */
import { EditrlError } from '../../core/errors.js';
import { readMeasure } from '../../rewards/score/identity.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import { getPath } from '../../core/schema/walk.js';
import { type ExperimentRecord, type RecordedRun } from '../find.js';
import { readMetrics, type MetricsLine } from '../metrics.js';
import { RunPaths } from '../paths.js';
import { readRecord } from '../record.js';
import { readStatus, type RunStatus } from '../status.js';
import { promptsOf } from './measures.js';
import { readRun, type RunReport } from './read.js';
import { tabulate, type ResultRun, type Results } from './results.js';

/** A run of an experiment and the contents of its folder. */
export interface ExperimentRun extends ResultRun {
  readonly cell: RecordedRun;
  readonly report: RunReport | null;
  readonly paths: RunPaths;
  /** Its current status. Null if it has no folder. */
  readonly status: RunStatus | null;
  /** Oldest first. Empty if there is nothing to read. */
  readonly lines: readonly MetricsLine[];
  /** Why its records cannot be read or do not count. Null if they do. */
  readonly problem: string | null;
}

export interface ExperimentReport {
  readonly record: ExperimentRecord;
  /** The cells, in the order of the matrix. */
  readonly runs: readonly ExperimentRun[];
  readonly results: Results;
}

/** Reads every cell. Problems in a run's folder are in its `problem` and never raised. */
export function readExperimentReport(baseExpDir: string, record: ExperimentRecord): ExperimentReport {
  const runs = record.cells.map((cell) => readCell(baseExpDir, cell));
  const results = tabulate(record.experiment, runs, record.baseline, readMeasure(record.measure));
  return { record, runs, results };
}

function readCell(baseExpDir: string, cell: RecordedRun): ExperimentRun {
  const { run_name, axes, refused } = cell;
  const paths = new RunPaths(baseExpDir, run_name);
  const common = { run_name, axes, cell, paths };
  const status = readStatus(paths);
  try {
    const lines = readMetrics(paths);
    const report = readRun(paths, lines);
    const recorded = readRecord(paths)?.settings ?? {};
    const settings: ReadSettings = (path) => getPath(recorded, path);
    const outcome = refused !== null ? 'failed' : status.state;
    return { ...common, status, report, lines, outcome, problem: refused, settings, prompts: promptsOf(paths) };
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    // A cell that never started has no folder, which is not a problem.
    const begun = status.state !== 'queued';
    const problem = begun ? error.toText() : null;
    return {
      ...common,
      status: begun ? status : null,
      report: null,
      lines: [],
      outcome: status.state,
      problem,
      settings: null,
    };
  }
}
