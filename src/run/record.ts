/** `run.json`: the settings, sources and attempts of a run. */
import { isDeepStrictEqual } from 'node:util';
import type { SettingChange, TextDigests } from '../config/hash.js';
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { getPath, setPath } from '../core/schema/walk.js';
import type { RunPaths } from './paths.js';
import { readJson } from './state.js';

/** A plain JSON object. */
export type PlainObject = Readonly<Record<string, unknown>>;

/** Sources of the settings, as absolute paths, so a run can be continued from any folder. */
export interface ConfigSource {
  readonly file: string;
  readonly overlays: readonly string[];
  readonly sets: readonly string[];
}

/** A result setting that changed during training with `--allow-changes`. */
export interface ChangedSetting extends SettingChange {
  /** The last iteration with the previous value. */
  readonly iteration: number;
}

/** The source run and iteration of a fork. */
export interface ForkPoint {
  readonly run: string;
  readonly iteration: number;
  /** Hash of the source run's result settings. */
  readonly hash: string;
  /** The settings that changed before that iteration. Absent if none did. */
  readonly changes?: readonly ChangedSetting[];
}

/** A parent run at the time of its last use. */
export interface RecordedParent extends PlainObject {
  readonly run: string;
  /** Hash of its result settings. Absent if unknown. */
  readonly hash?: string;
  /** The iteration of the used checkpoint. Absent before the first use. */
  readonly iteration?: number;
  /** SHA-256 of that checkpoint's manifest. */
  readonly manifest?: string;
}

/** A dataset at the start of a run: its number of samples, and digests of their paths and contents (null: unknown). */
export interface RecordedData {
  readonly samples: number;
  readonly ids: string;
  readonly files: string | null;
  /** Number of evaluated held-out samples that are also in the training data. Absent for none. */
  readonly in_training?: number;
}

/** One start or resume of a run. */
export interface RunAttempt {
  /** Counted from 1. */
  readonly attempt: number;
  readonly started_at: string;
  /** The iteration that it continued from, or 0 when started from scratch. */
  readonly from_iteration: number;
  readonly command: readonly string[];
  readonly host: string;
  readonly pid: number;
  readonly slurm_job_id: string | null;
  readonly devices: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
  /** Hash over the contents of the config's sources. */
  readonly import_hash: string;
  /** Result-affecting settings that this attempt changed with `--allow-changes`. */
  readonly allowed_changes?: readonly SettingChange[];
}

export interface RunRecord {
  readonly format: 1;
  readonly run_name: string;
  /** Hash of the result settings. */
  readonly hash: string;
  readonly import_hash: string;
  /** All settings as last resolved. */
  readonly settings: PlainObject;
  /** Parent runs. */
  readonly parents: readonly PlainObject[];
  /** The commits of Hub models at the start of the run, by `owner/name@revision`. Absent for none. */
  readonly models?: Readonly<Record<string, string>>;
  /** Digests of the settings' text files at the last start. Absent for none. */
  readonly texts?: TextDigests;
  /** The datasets by path, relative to `data.dir` if inside it. Absent before they were opened. */
  readonly data?: Readonly<Record<string, RecordedData>>;
  /** Absent if the settings were not read from a config file. */
  readonly config?: ConfigSource;
  /** The experiment of the last start. Absent for a single run. */
  readonly experiment?: string;
  /** Absent unless the run is a fork of another. */
  readonly fork?: ForkPoint;
  readonly created_at: string;
  readonly attempts: readonly RunAttempt[];
}

/** Reads `run.json`. Null if the run does not exist. Raises RunError for an invalid record. */
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
      `this version of editrl cannot read the run record (format ${JSON.stringify(record.format ?? null)}${by})`,
      {
        where: paths.record,
        next: 'Use the version that wrote it, choose another run_name, or move the folder away.',
      },
    );
  }
  return value as RunRecord;
}

/** `, written by editrl <version>` if a record contains the version. */
function writtenBy(record: Partial<RunRecord>): string {
  const attempts: readonly Partial<RunAttempt>[] = Array.isArray(record.attempts) ? record.attempts : [];
  const version = attempts.at(-1)?.versions?.['editrl'];
  return version === undefined ? '' : `, written by editrl ${version}`;
}

export function writeRecord(paths: RunPaths, record: RunRecord): void {
  writeFileAtomic(paths.record, `${JSON.stringify(record, null, 2)}\n`);
}

/** One line per change: `key: before -> after`, with the reason unless 'bare'. */
export function formatChanges(changes: readonly SettingChange[], form: 'with rules' | 'bare' = 'with rules'): string[] {
  const show = (value: unknown): string => JSON.stringify(value ?? null);
  return changes.map((change) => {
    const { key, before, after } = change;
    const rule = form === 'bare' ? '' : ruleOf(change);
    return `${key}: ${show(before)} -> ${show(after)}${rule}`;
  });
}

/** The reason why a change affects the result, if it is not obvious. */
function ruleOf({ key, before, after }: SettingChange): string {
  if (key.startsWith('parents.')) {
    return String(before).startsWith('settings')
      ? ' (the parent run was retrained with other settings)'
      : ' (the parent checkpoint has changed; restore it to continue as before)';
  }
  if (key !== 'num_iterations') return '';
  if (Number(after) < Number(before)) return ' (must not be lowered)';
  return ' (the learning rate schedule depends on it; if allowed, the schedule is stretched and the rate rises again)';
}

/** The changes in order, including those of a fork's source run. */
export function changedSettings({ attempts, fork }: Pick<RunRecord, 'attempts' | 'fork'>): ChangedSetting[] {
  // Ignores changes before the first iteration.
  const own = attempts
    .filter(({ from_iteration: iteration }) => iteration > 0)
    .flatMap(({ from_iteration: iteration, allowed_changes: changes = [] }) =>
      changes.map((change): ChangedSetting => ({ ...change, iteration })),
    );
  return [...(fork?.changes ?? []), ...own];
}

/**
 * The settings at the checkpoint of an iteration. `undone` are later changes, which are reverted. `kept` are later changes that settings alone cannot
 * revert, such as changes of parent runs.
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
