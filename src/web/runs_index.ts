/**
 * An index of the runs in some folders, in memory. It reads a file again when its size or time changes. Slow work is split into slices so that
 * requests are answered in between. The index never writes. Deleted or partly written runs are shown as far as possible.
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { EditrlError } from '../core/errors.js';
import { readStatuses } from '../launch/slurm/status.js';
import { experimentFile, readExperiment, type ExperimentRecord } from '../run/find.js';
import { isRunName, RunPaths } from '../run/paths.js';
import { readRecord, type RunRecord } from '../run/record.js';
import { readRescoredMeasures } from '../run/report/measures.js';
import { summarizeHeldOut, type HeldOut } from '../run/report/read.js';
import { readStatus, type RunStatus, type ShownState } from '../run/status.js';
import { getPath, leavesOf } from '../core/schema/walk.js';
import { evaluatedLines, Slices } from './series.js';

/** A run at the time of its last read. */
export interface IndexedRun {
  /** `FOLDER/NAME`. FOLDER is the index of the folder, from 0. */
  readonly id: string;
  readonly paths: RunPaths;
  readonly status: RunStatus;
  /** Last heartbeat, in milliseconds since 1970. */
  readonly heartbeat: number | null;
  /** Held-out numbers. Null before the first evaluation, or if its line is unreadable, which the curves report. */
  readonly heldOut: HeldOut | null;
  readonly settings: SettingsRow;
  /** The runs that it started from. */
  readonly parents: readonly string[];
}

/** Called with the ids of runs that were added, changed or removed. */
export type OnChanged = (ids: readonly string[]) => void;

/** States that can change without a change of files. */
const LIVE: ReadonlySet<ShownState> = new Set(['queued', 'running', 'waiting', 'dead']);

const LOOK_EVERY_MS = 1_000;
/** Ended runs and Slurm are checked only once in this many scans. */
const ENDED_EVERY = 5;
const SLURM_EVERY = 10;
/** Maximum duration of a slice of work, in milliseconds. */
const SLICE_MS = 12;

interface Watched {
  readonly id: string;
  readonly paths: RunPaths;
  stamps: Stamps | null;
  run: IndexedRun | null;
  /** Whether the status comes from Slurm. It then stays until the files change or Slurm is queried again. */
  slurm: boolean;
}

/** Size, time and identity of each file behind a run's entry. */
interface Stamps {
  readonly record: string;
  readonly metrics: string;
  readonly others: string;
}

const noSettings: SettingsRow = new Uint32Array(0);

export class RunsIndex {
  readonly settings = new SettingsTable();
  readonly experiments = new ExperimentRecords();
  readonly #watched = new Map<string, Watched>();
  /** Runs that only Slurm knows. They wait in its queue or ended there, and have no folder. */
  #queued: ReadonlyMap<string, IndexedRun> = new Map();
  readonly #problems = new Map<string, string>();
  #slurmProblems: readonly string[] = [];
  #looks = 0;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;

  constructor(
    readonly folders: readonly string[],
    private readonly onChanged: OnChanged,
    /** Called with errors of a scan. The next scan continues. */
    private readonly onDefect: (error: unknown) => void,
  ) {}

  /** Scans once a second until `close`. Resolves when every run has been read once. */
  async start(): Promise<void> {
    await this.look().catch(this.onDefect);
    this.#schedule();
  }

  close(): void {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(
      () =>
        void this.look()
          .catch(this.onDefect)
          .then(() => this.#schedule()),
      LOOK_EVERY_MS,
    );
  }

  /** Problems with folders or with Slurm. */
  get problems(): readonly string[] {
    return [...this.#problems.values(), ...this.#slurmProblems];
  }

  get runs(): IndexedRun[] {
    const queued = [...this.#queued.values()].filter(({ id }) => !this.#watched.has(id));
    return [...[...this.#watched.values()].flatMap(({ run }) => run ?? []), ...queued];
  }

  /** Number of discovered runs that were not read yet. */
  get unread(): number {
    let count = 0;
    for (const { run } of this.#watched.values()) count += run === null ? 1 : 0;
    return count;
  }

  /** Null for an unknown or removed run. */
  get(id: string): IndexedRun | null {
    const watched = this.#watched.get(id);
    return watched === undefined ? (this.#queued.get(id) ?? null) : watched.run;
  }

  /** The run with this name in the folder of another run. */
  sibling(run: IndexedRun, name: string): IndexedRun | null {
    return this.get(idOf(this.#folderOf(run.id), name));
  }

  #folderOf(id: string): number {
    return Number(id.slice(0, id.indexOf('/')));
  }

  /** Scans every folder once. */
  async look(): Promise<void> {
    const all = this.#looks % ENDED_EVERY === 0;
    const slurm = this.#looks % SLURM_EVERY === 0;
    this.#looks++;
    const slices = new Slices(SLICE_MS);
    const changed = all ? this.#list() : [];
    for (const watched of [...this.#watched.values()]) {
      if (this.#closed) return;
      const live = watched.run === null || LIVE.has(watched.run.status.state);
      if ((all || live) && this.#refreshSafely(watched, live)) changed.push(watched.id);
      if (slices.over) {
        this.#tell(changed.splice(0));
        await slices.next();
      }
    }
    if (slurm) changed.push(...(await this.#askSlurm()));
    this.#tell(changed);
  }

  #tell(ids: readonly string[]): void {
    if (ids.length > 0 && !this.#closed) this.onChanged(ids);
  }

  /** Adds new runs and drops removed ones. Returns the ids of the removed runs. */
  #list(): string[] {
    const found = new Set<string>();
    this.folders.forEach((folder, index) => {
      for (const name of this.#namesIn(folder)) {
        const id = idOf(index, name);
        found.add(id);
        if (this.#watched.has(id)) continue;
        if (!existsSync(join(folder, name, 'run.json'))) {
          found.delete(id);
          continue;
        }
        this.#watched.set(id, { id, paths: new RunPaths(folder, name), stamps: null, run: null, slurm: false });
      }
    });
    const gone = [...this.#watched.keys()].filter((id) => !found.has(id));
    for (const id of gone) this.#watched.delete(id);
    return gone;
  }

  #namesIn(folder: string): string[] {
    try {
      const names = readdirSync(folder).filter(isRunName).sort();
      this.#problems.delete(folder);
      return names;
    } catch (cause) {
      const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
      // The folder does not exist yet. Runs may create it.
      if (code === 'ENOENT') this.#problems.delete(folder);
      else this.#problems.set(folder, `Cannot list ${folder} (${code})`);
      return [];
    }
  }

  /** Like `#refresh`, but unreadable files of one run do not affect other runs. */
  #refreshSafely(watched: Watched, live: boolean): boolean {
    try {
      return this.#refresh(watched, live);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      const { run, paths } = watched;
      // Forgets the files' stamps, so that unchanged files are read again once they are readable.
      watched.stamps = null;
      const status: RunStatus = {
        run_name: paths.runName,
        state: 'unreadable',
        iteration: 0,
        num_iterations: 0,
        reward: null,
        alarms: [],
        best_checkpoint: null,
        spent: null,
        heartbeat_age_s: null,
        where: null,
        reason: error.message,
      };
      const same = run !== null && visiblePart(run.status) === visiblePart(status);
      watched.run = withoutFiles(watched.id, paths, status);
      return !same;
    }
  }

  /** Reads the changed files of a run. Returns whether its entry changed. */
  #refresh(watched: Watched, live: boolean): boolean {
    const { id, paths, stamps: before, run } = watched;
    const stamps = stampsOf(paths);
    if (stamps.record === '' && run !== null) {
      // The folder is being removed or was moved.
      this.#watched.delete(id);
      return true;
    }
    const same = before !== null && before.record === stamps.record && before.others === stamps.others;
    const grown = before?.metrics !== stamps.metrics;
    if (same && !grown && (!live || watched.slurm)) return false;
    watched.slurm = false;
    const status = readStatus(paths);
    const heldOut = grown || run === null ? heldOutOf(paths) : run.heldOut;
    const recorded = before?.record === stamps.record && run !== null ? run : this.#recorded(paths);
    const heartbeat = status.heartbeat_age_s === null ? null : Date.now() - status.heartbeat_age_s * 1000;
    watched.stamps = stamps;
    watched.run = {
      id,
      paths,
      status,
      heartbeat,
      heldOut,
      settings: recorded.settings,
      parents: recorded.parents,
    };
    return run === null || !same || grown || visiblePart(run.status) !== visiblePart(status);
  }

  /** Empty for an unreadable record. The status reports the reason. */
  #recorded(paths: RunPaths): Pick<IndexedRun, 'settings' | 'parents'> {
    const record = recordOf(paths);
    if (record === null) return { settings: noSettings, parents: [] };
    const parents = record.parents.flatMap((parent) => (typeof parent['run'] === 'string' ? [parent['run']] : []));
    return { settings: this.settings.row(leavesOf(record.settings)), parents };
  }

  /** Queries Slurm about submitted runs without a folder. Skips the query if nothing was ever submitted. */
  async #askSlurm(): Promise<string[]> {
    const changed: string[] = [];
    const problems: string[] = [];
    const queued = new Map<string, IndexedRun>();
    for (const [index, folder] of this.folders.entries()) {
      const live = [...this.#watched.values()].filter(
        ({ id, run }) => this.#folderOf(id) === index && run !== null && LIVE.has(run.status.state),
      );
      const found = await readStatuses(
        live.map(({ paths }) => paths),
        [folder],
      );
      problems.push(...found.problems);
      for (const [at, status] of found.statuses.entries()) {
        if (at < live.length) changed.push(...applySlurmStatus(live[at], status));
        else {
          const id = idOf(index, status.run_name);
          if (!this.#watched.has(id)) queued.set(id, withoutFiles(id, new RunPaths(folder, status.run_name), status));
        }
      }
    }
    const ids = new Set([...queued.keys(), ...this.#queued.keys()]);
    const of = (runs: ReadonlyMap<string, IndexedRun>, id: string): string => visiblePart(runs.get(id)?.status ?? null);
    changed.push(...[...ids].filter((id) => of(queued, id) !== of(this.#queued, id)));
    this.#queued = queued;
    this.#slurmProblems = problems;
    return changed;
  }
}

/** Takes over Slurm's status of a run. Returns its id if its entry changed. */
function applySlurmStatus(watched: Watched, status: RunStatus): string[] {
  if (watched.run === null || visiblePart(watched.run.status) === visiblePart(status)) return [];
  watched.slurm = true;
  watched.run = { ...watched.run, status };
  return [watched.id];
}

/** A run with only a status. */
function withoutFiles(id: string, paths: RunPaths, status: RunStatus): IndexedRun {
  return { id, paths, status, heartbeat: null, heldOut: null, settings: noSettings, parents: [] };
}

/** Whether an error comes from the operating system, for example missing permissions. */
export function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error;
}

export function idOf(folder: number, name: string): string {
  return `${folder}/${name}`;
}

/** A run's record. Null if it is unreadable. */
export function recordOf(paths: RunPaths): RunRecord | null {
  return nullOnError(() => readRecord(paths));
}

function nullOnError<T>(read: () => T | null): T | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}

/** The visible part of a status, without the heartbeat, which changes all the time. */
function visiblePart(status: RunStatus | null): string {
  return JSON.stringify({ ...status, heartbeat_age_s: null });
}

/** Null before the first evaluation, and for unreadable metrics. */
function heldOutOf(paths: RunPaths): HeldOut | null {
  return nullOnError(() => {
    const lines = evaluatedLines(paths.metrics);
    const settings = recordOf(paths)?.settings ?? {};
    const found = summarizeHeldOut(lines, {
      read: (path) => getPath(settings, path),
      rescored: lines.length === 0 ? [] : readRescoredMeasures(paths),
    });
    return found.metric === null ? null : found;
  });
}

function stampsOf(paths: RunPaths): Stamps {
  return {
    record: stampOf(paths.record),
    metrics: `${stampOf(paths.metrics)} ${stampOf(paths.rescoredDir)}`,
    others: `${stampOf(paths.state)} ${stampOf(paths.lock)}`,
  };
}

/** Size, time and identity of a file. Empty if there is none, or the error code if access is denied. */
export function stampOf(path: string): string {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    return found === undefined ? '' : `${found.ino} ${found.size} ${found.mtimeMs}`;
  } catch (cause) {
    // A folder without access permission. The run's status reports it.
    return String((cause as NodeJS.ErrnoException).code);
  }
}

/** Number of cached records. Records of large matrices take megabytes. */
const MAX_CACHED = 200;

interface CachedRecord {
  readonly stamp: string;
  readonly record: ExperimentRecord | null;
}

export class ExperimentRecords {
  readonly #known = new LRUCache<string, CachedRecord>({ max: MAX_CACHED });

  /** Null for a missing record, or one from another version. */
  get(folder: string, name: string): ExperimentRecord | null {
    const path = experimentFile(folder, name);
    const stamp = stampOf(path);
    const known = this.#known.get(path);
    if (known?.stamp === stamp) return known.record;
    const record = nullOnError(() => readExperiment(folder, name));
    this.#known.set(path, { stamp, record });
    return record;
  }
}

/** The leaves of settings. A list counts as one value. */
export type Leaves = readonly (readonly [key: string, value: unknown])[];

/** A run's settings: for the index of each key, the index of its value, or 0 if it has none. */
export type SettingsRow = Uint32Array;

export class SettingsTable {
  readonly #keys = new Map<string, number>();
  /** Keyed by JSON, so equal values share an entry. */
  readonly #places = new Map<string, number>();
  /** Index 0 is a missing value. */
  readonly #values: unknown[] = [undefined];

  get keys(): readonly string[] {
    return [...this.#keys.keys()];
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  row(leaves: Leaves): SettingsRow {
    const pairs = leaves.map(([key, value]) => [this.#keyPlace(key), this.#valuePlace(value)] as const);
    const row = new Uint32Array(this.#keys.size);
    for (const [key, value] of pairs) row[key] = value;
    return row;
  }

  /** Undefined if the run has no such key. */
  valueOf(row: SettingsRow, key: string): unknown {
    const place = this.#keys.get(key);
    return place === undefined ? undefined : this.#values[row[place] ?? 0];
  }

  /** Number of distinct values per key among the given runs. Missing counts as a value. */
  counts(rows: readonly SettingsRow[]): { readonly key: string; readonly values: number }[] {
    return [...this.#keys].map(([key, place]) => ({
      key,
      values: new Set(rows.map((row) => row[place] ?? 0)).size,
    }));
  }

  #keyPlace(key: string): number {
    let place = this.#keys.get(key);
    if (place === undefined) this.#keys.set(key, (place = this.#keys.size));
    return place;
  }

  #valuePlace(value: unknown): number {
    const text = JSON.stringify(value) ?? 'null';
    let place = this.#places.get(text);
    if (place === undefined) {
      place = this.#values.push(value) - 1;
      this.#places.set(text, place);
    }
    return place;
  }
}
