/** `run.json`: what a run is made from and every attempt at it. */
import type { SettingChange } from '../config/hash.js';
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import type { RunPaths } from './paths.js';
import { readJson } from './state.js';

/** A plain JSON object. */
export type PlainObject = Readonly<Record<string, unknown>>;

/** One start or resume of a run. */
export interface RunAttempt {
  /** Counted from 1. */
  readonly attempt: number;
  readonly started_at: string;
  /** The iteration that it continued from; 0 for a start from nothing. */
  readonly from_iteration: number;
  readonly command: readonly string[];
  readonly host: string;
  readonly pid: number;
  readonly slurm_job_id: string | null;
  readonly devices: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
  /** Which sources the config was evaluated from (a hash over their contents). */
  readonly import_hash: string;
}

export interface RunRecord {
  readonly format: 1;
  readonly run_name: string;
  /** Hash of the settings that decide the result. */
  readonly hash: string;
  readonly import_hash: string;
  /** All settings as they were last resolved. */
  readonly settings: PlainObject;
  /** Runs whose checkpoints this one starts from. */
  readonly parents: readonly PlainObject[];
  readonly created_at: string;
  readonly attempts: readonly RunAttempt[];
}

/** Reads `run.json`; null when the run does not exist. Raises RunError when it is not a run's record. */
export function readRecord(paths: RunPaths): RunRecord | null {
  const value = readJson(paths.record);
  if (value === null) return null;
  const record = value as Partial<RunRecord>;
  const whole =
    record.format === 1 &&
    typeof record.settings === 'object' &&
    record.settings !== null &&
    Array.isArray(record.attempts);
  if (!whole) {
    throw new RunError('not the record of a run that this version of editrl can read', {
      where: paths.record,
      next: 'Choose another run_name, or move the folder away.',
    });
  }
  return value as RunRecord;
}

export function writeRecord(paths: RunPaths, record: RunRecord): void {
  writeFileAtomic(paths.record, `${JSON.stringify(record, null, 2)}\n`);
}

/** One line per change: `key: before -> after`. */
export function formatChanges(changes: readonly SettingChange[]): string[] {
  const show = (value: unknown): string => JSON.stringify(value ?? null);
  return changes.map((change) => {
    const { key, before, after } = change;
    const rule =
      key !== 'num_iterations'
        ? ''
        : Number(after) < Number(before)
          ? ' (it may only grow)'
          : ' (a schedule depends on it)';
    return `${key}: ${show(before)} -> ${show(after)}${rule}`;
  });
}
