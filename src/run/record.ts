/** `run.json`: what a run is made from and every attempt at it. */
import { isDeepStrictEqual } from 'node:util';
import type { SettingChange, TextDigests } from '../config/hash.js';
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { getPath, setPath } from '../core/schema/walk.js';
import type { RunPaths } from './paths.js';
import { readJson } from './state.js';

/** A plain JSON object. */
export type PlainObject = Readonly<Record<string, unknown>>;

/** Where the settings were loaded from; absolute paths, so that a run can be continued from any folder. */
export interface ConfigSource {
  readonly file: string;
  readonly overlays: readonly string[];
  readonly sets: readonly string[];
}

/** A setting that decides the result and changed while a run trained, which `--allow-changes` permits. */
export interface ChangedSetting extends SettingChange {
  /** The last iteration that was trained with the value before. */
  readonly iteration: number;
}

/** The run and the iteration that a forked run began with. */
export interface ForkPoint {
  readonly run: string;
  readonly iteration: number;
  /** Hash of the settings that decided the forked run's result. */
  readonly hash: string;
  /** The settings that changed on the way to that iteration; absent if none did. */
  readonly changes?: readonly ChangedSetting[];
}

/** A run that another starts from, as it was when it was last used. */
export interface RecordedParent extends PlainObject {
  readonly run: string;
  /** Hash of the settings that decided its result; absent if unknown. */
  readonly hash?: string;
  /** The iteration of the checkpoint that is used, from the first attempt on; absent until one was. */
  readonly iteration?: number;
  /** SHA-256 of that checkpoint's manifest; absent if an earlier version recorded only the iteration. */
  readonly manifest?: string;
}

/** A dataset as it was when a run began: how many samples it lists, and digests of their paths and of their contents (null: not known). */
export interface RecordedData {
  readonly samples: number;
  readonly ids: string;
  readonly files: string | null;
  /** How many of the held-out samples that are evaluated were found in the training data; absent for none. */
  readonly in_training?: number;
}

/** One start or resume of a run. */
export interface RunAttempt {
  /** Counted from 1. */
  readonly attempt: number;
  readonly started_at: string;
  /** The iteration that it continued from; 0 when started from scratch. */
  readonly from_iteration: number;
  readonly command: readonly string[];
  readonly host: string;
  readonly pid: number;
  readonly slurm_job_id: string | null;
  readonly devices: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
  /** Hash over the contents of the sources that the config was evaluated from. */
  readonly import_hash: string;
  /** Settings that decide the result and were changed at this attempt because `--allow-changes` named them. */
  readonly allowed_changes?: readonly SettingChange[];
}

export interface RunRecord {
  readonly format: 1;
  readonly run_name: string;
  /** Hash of the settings that decide the result. */
  readonly hash: string;
  readonly import_hash: string;
  /** All settings as last resolved. */
  readonly settings: PlainObject;
  /** Runs whose checkpoints this one starts from. */
  readonly parents: readonly PlainObject[];
  /** The commits of the Hub's models that the run began with, by `owner/name@revision`; absent if it uses none. */
  readonly models?: Readonly<Record<string, string>>;
  /** Digests of the text files that settings name, as of the last start; absent if there are none. */
  readonly texts?: TextDigests;
  /** The datasets by their paths, relative to the settings' `data.dir` if they are inside it; absent until they were opened. */
  readonly data?: Readonly<Record<string, RecordedData>>;
  /** Absent if the settings were not read from a config file. */
  readonly config?: ConfigSource;
  /** The experiment that the run was last started for; absent if it was started on its own. */
  readonly experiment?: string;
  /** Absent unless the run is a fork of another. */
  readonly fork?: ForkPoint;
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
    const by = writtenBy(record);
    throw new RunError(
      `not the record of a run that this version of editrl can read (format ${JSON.stringify(record.format ?? null)}${by})`,
      {
        where: paths.record,
        next: 'Use the version that wrote it, or choose another run_name, or move the folder away.',
      },
    );
  }
  return value as RunRecord;
}

/** `, written by editrl <version>` if a record says so. */
function writtenBy(record: Partial<RunRecord>): string {
  const attempts: readonly Partial<RunAttempt>[] = Array.isArray(record.attempts) ? record.attempts : [];
  const version = attempts.at(-1)?.versions?.['editrl'];
  return version === undefined ? '' : `, written by editrl ${version}`;
}

export function writeRecord(paths: RunPaths, record: RunRecord): void {
  writeFileAtomic(paths.record, `${JSON.stringify(record, null, 2)}\n`);
}

/** One line per change: `key: before -> after`, with the rule that it breaks unless 'bare'. */
export function formatChanges(changes: readonly SettingChange[], form: 'with rules' | 'bare' = 'with rules'): string[] {
  const show = (value: unknown): string => JSON.stringify(value ?? null);
  return changes.map((change) => {
    const { key, before, after } = change;
    const rule = form === 'bare' ? '' : ruleOf(change);
    return `${key}: ${show(before)} -> ${show(after)}${rule}`;
  });
}

/** Why a change affects the result, if the setting alone does not tell. */
function ruleOf({ key, before, after }: SettingChange): string {
  if (key.startsWith('parents.')) {
    return String(before).startsWith('settings')
      ? ' (the run that it starts from was made anew with other settings)'
      : ' (the checkpoint that it starts from is not there as it was; brought back, it is used as before)';
  }
  if (key !== 'num_iterations') return '';
  if (Number(after) < Number(before)) return ' (it may not be lowered)';
  return ' (it may not grow: the learning rate falls until the last iteration. Allowed all the same, the fall is stretched and the rate rises again)';
}

/** The changes in the order in which they were made, with those of the run that this one is a fork of. */
export function changedSettings({ attempts, fork }: Pick<RunRecord, 'attempts' | 'fork'>): ChangedSetting[] {
  // What changes before the first iteration was never trained with.
  const own = attempts
    .filter(({ from_iteration: iteration }) => iteration > 0)
    .flatMap(({ from_iteration: iteration, allowed_changes: changes = [] }) =>
      changes.map((change): ChangedSetting => ({ ...change, iteration })),
    );
  return [...(fork?.changes ?? []), ...own];
}

/**
 * The settings that the checkpoint of an iteration was trained with. `undone` are later changes, which are taken back. `kept` are later changes that
 * settings alone cannot take back, such as those of the runs that this one starts from.
 */
export function settingsAt(
  record: Pick<RunRecord, 'attempts' | 'fork' | 'settings'>,
  iteration: number,
): { readonly settings: PlainObject; readonly undone: ChangedSetting[]; readonly kept: ChangedSetting[] } {
  const settings = structuredClone(record.settings) as Record<string, unknown>;
  const [undone, kept]: ChangedSetting[][] = [[], []];
  const later = changedSettings(record).filter((change) => change.iteration >= iteration);
  for (const change of later.toReversed()) {
    const isThere = isDeepStrictEqual(getPath(settings, change.key), change.after);
    const taken = isThere && setPath(settings, change.key, change.before) === null;
    (taken ? undone : kept).unshift(change);
  }
  return { settings, undone, kept };
}

/** One line per change: `key: before -> after, from iteration N on`. */
export function formatChangedSettings(changes: readonly ChangedSetting[]): string[] {
  const show = (value: unknown): string => JSON.stringify(value ?? null);
  return changes.map(
    ({ key, before, after, iteration }) =>
      `${key}: ${show(before)} -> ${show(after)} from iteration ${iteration + 1} on`,
  );
}
