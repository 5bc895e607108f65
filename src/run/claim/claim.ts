/** Claims a run: creates it, resumes it from its last complete checkpoint, or reports that it is finished. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { SettingChange, TextDigests } from '../../config/hash.js';
import { CheckpointError, ConfigError, DataError, must } from '../../core/errors.js';
import { diskError } from '../../core/files.js';
import {
  checkpointProblems,
  cleanCheckpoints,
  latestWhole,
  listCheckpoints,
  manifestDigest,
  quarantine,
  type WholeCheckpoint,
} from '../checkpoints.js';
import { Journal, rewindTo } from '../journal.js';
import { acquireLock, lentLock, realLockWorld, type LockOwner, type LockWorld, type RunLock } from './lock.js';
import { recordParents, withMovedPins } from './parents.js';
import { RunPaths, writtenFolders } from '../paths.js';
import { formatChanges, readRecord, writeRecord } from '../record.js';
import type { ConfigSource, PlainObject, RecordedData, RunAttempt, RunRecord } from '../record.js';
import { isDone, readState, writeState, type RunState } from '../state.js';

export interface ClaimRequest {
  readonly settings: PlainObject & {
    readonly run_name: string;
    readonly base_exp_dir: string;
    readonly num_iterations: number;
  };
  /**
   * Which of the settings that decide the result differ from those of the run's last start. A raised `num_iterations` is among them only if it may
   * not grow. See `claimRequest`.
   */
  readonly compare: (before: PlainObject, record: RunRecord) => readonly SettingChange[];
  /** Whether all training progress is in the run's own checkpoints, so a run without one accepts any settings. Default: no. */
  readonly learnsInCheckpoints?: boolean;
  /** Digests of the text files that the settings name. */
  readonly texts?: TextDigests;
  /** Hash over the result settings. */
  readonly resultHash: string;
  /** Hash over the config's own text and everything that it imports. */
  readonly importHash: string;
  /** The command line. */
  readonly command: readonly string[];
  readonly versions: Readonly<Record<string, string>>;
  readonly devices?: readonly string[];
  readonly parents?: readonly PlainObject[];
  /** The commits of Hub models, by `owner/name@revision`. A resumed run keeps its original ones. */
  readonly models?: Readonly<Record<string, string>>;
  /** The source of the settings. */
  readonly config?: ConfigSource;
  /** The experiment it is started for. */
  readonly experiment?: string;
  /** Dotted paths of result settings that may change at this attempt. Each of them must change. */
  readonly allowChanges?: readonly string[];
}

export type ClaimKind = 'new' | 'resumed' | 'finished';

/** A claimed run as plain JSON, for the training process, which borrows the lock of the claiming process. */
export interface LentRun {
  readonly kind: ClaimKind;
  readonly record: RunRecord;
  readonly attempt: number;
  readonly checkpoint: WholeCheckpoint | null;
  readonly state: RunState;
  readonly owner: LockOwner;
}

/** A claimed run. A finished run must not be written to. */
export class RunHandle {
  constructor(
    readonly kind: ClaimKind,
    readonly paths: RunPaths,
    private recorded: RunRecord,
    /** Number of this start or resume, from 1. Each attempt has its own logs. */
    readonly attempt: number,
    /** The checkpoint to continue from. Null when starting from scratch. */
    readonly checkpoint: WholeCheckpoint | null,
    /** Notes for the user: skipped checkpoints, repaired lines, a raised `num_iterations`. */
    readonly notes: readonly string[],
    private current: RunState,
    private readonly lock: RunLock,
  ) {}

  /** Opens a run that another process has claimed. Raises RunError if the lock is gone. */
  static borrow(paths: RunPaths, { kind, record, attempt, checkpoint, state, owner }: LentRun): RunHandle {
    return new RunHandle(kind, paths, record, attempt, checkpoint, [], state, lentLock(paths, owner));
  }

  lend(): LentRun {
    const { kind, recorded: record, attempt, checkpoint, current: state, lock } = this;
    return { kind, record, attempt, checkpoint, state, owner: lock.owner };
  }

  get record(): RunRecord {
    return this.recorded;
  }

  get state(): RunState {
    return this.current;
  }

  /** Replaces the given fields of `state.json` and refreshes both heartbeats. Raises RunError if another process took the run over. Only one process may write. */
  setState(
    change: Partial<Pick<RunState, 'state' | 'iteration' | 'reason' | 'stopped_early' | 'best_checkpoint'>>,
  ): void {
    this.lock.heartbeat();
    this.current = writeState(this.paths, { ...this.current, ...change });
  }

  /** Raises RunError if another process took the run over. Only that process may then write to the folder. */
  requireOwned(): void {
    this.lock.heartbeat();
  }

  /** Pins the parent checkpoint in use. Raises RunError if the run was taken over, or for a disk error. */
  noteParent(run: string, { iteration, dir }: WholeCheckpoint): void {
    const manifest = must(manifestDigest(dir), `the manifest of ${dir}`);
    const { parents } = this.recorded;
    const before = parents.find((parent) => parent['run'] === run);
    if (before === undefined || (before['iteration'] === iteration && before['manifest'] === manifest)) return;
    this.requireOwned();
    const noted = parents.map((parent) => (parent === before ? { ...parent, iteration, manifest } : parent));
    this.recorded = { ...this.recorded, parents: noted };
    writeRecord(this.paths, this.recorded);
  }

  /**
   * Records the datasets as they are opened. Raises DataError if a dataset has changed since the start of the training in the checkpoint. Raises
   * RunError if the run was taken over, or for a disk error.
   */
  noteData(opened: Readonly<Record<string, RecordedData>>): void {
    const before = this.recorded.data ?? {};
    for (const [path, now] of Object.entries(opened)) {
      const was = Object.hasOwn(before, path) ? before[path] : null;
      if (was === null || this.checkpoint === null) continue;
      const otherFiles = was.files !== null && now.files !== null && was.files !== now.files;
      if (was.ids === now.ids && !otherFiles) continue;
      const how =
        was.samples === now.samples
          ? `some of its ${now.samples} samples differ`
          : `it had ${was.samples} samples and now has ${now.samples}`;
      throw new DataError(`the dataset has changed since run ${this.paths.runName} started: ${how}`, {
        where: path,
        next: 'Restore the dataset. To train on the new one, choose another run_name, or start from scratch with `editrl run … --fresh`.',
      });
    }
    // Keeps the count from the start of the run.
    const kept = Object.entries(opened).map(([path, now]) => [path, { ...before[path], ...now }] as const);
    const data = this.checkpoint === null ? opened : { ...before, ...Object.fromEntries(kept) };
    if (JSON.stringify(data) === JSON.stringify(before)) return;
    this.requireOwned();
    this.recorded = { ...this.recorded, data };
    writeRecord(this.paths, this.recorded);
  }

  /** Releases the run. May be called more than once. */
  release(): void {
    this.lock.release();
  }
}

/**
 * Claims `base_exp_dir/run_name`. `held` is the run's lock if the caller has it and releases it. Otherwise this function takes the lock and the handle
 * releases it, immediately for a finished run. Raises RunError if another process owns the run, or for a disk error, ConfigError for changed result
 * settings, and CheckpointError if there are checkpoints but none is valid. Errors leave the run unchanged.
 */
export function claimRun(request: ClaimRequest, world: LockWorld = realLockWorld(), held?: RunLock): RunHandle {
  const paths = new RunPaths(request.settings.base_exp_dir, request.settings.run_name);
  try {
    mkdirSync(paths.dir, { recursive: true });
  } catch (cause) {
    throw diskError(paths.dir, cause);
  }
  const lock = held ?? acquireLock(paths, world);
  try {
    const before = readRecord(paths);
    if (before === null) checkChanges(paths.runName, [], request.allowChanges);
    const handle = before === null ? begin(request, paths, lock) : resume(request, paths, lock, before);
    if (handle.kind === 'finished' && held === undefined) lock.release();
    return handle;
  } catch (error) {
    if (held === undefined) lock.release();
    throw error;
  }
}

function begin(request: ClaimRequest, paths: RunPaths, lock: RunLock): RunHandle {
  // A process that died before it wrote run.json may have left files, which nothing uses.
  if (listCheckpoints(paths).length > 0) {
    throw new CheckpointError('there are checkpoints but no run.json', {
      where: paths.dir,
      next: 'Restore run.json from a copy, move the folder away, or choose another run_name.',
    });
  }
  cleanDirectory(paths);
  rewindTo(paths, -1);
  const record = makeRecord(request, lock, null, 0, []);
  writeRecord(paths, record);
  const state = enterRunning(request, paths, 0);
  return new RunHandle('new', paths, record, 1, null, [], state, lock);
}

function resume(request: ClaimRequest, paths: RunPaths, lock: RunLock, before: RunRecord): RunHandle {
  const notes: string[] = [];
  const state = readState(paths);
  const changes = request.compare(before.settings, before);
  // A run that stopped early continues if a setting of that rule changes.
  const goesOn =
    !isDone(state, request.settings.num_iterations) || (state?.stopped_early === true && changes.length > 0);
  // A finished run no longer needs its parents.
  const runs = goesOn ? (request.parents ?? []).map((parent) => String(parent['run'])) : [];
  const allowed = withMovedPins(changes, paths.baseExpDir, before.parents, runs);
  const present = listCheckpoints(paths);
  // A run without training progress accepts any settings.
  const begins = goesOn && request.learnsInCheckpoints === true && present.length === 0;
  checkSettings(request, before, allowed, begins, notes);
  if (state !== null && !goesOn) {
    return new RunHandle('finished', paths, before, before.attempts.length, null, notes, state, lock);
  }
  cleanDirectory(paths);
  const checkpoint = latestWhole(paths);
  if (checkpoint === null && present.length > 0) {
    const newest = checkpointProblems(paths.checkpoint(present[present.length - 1]), present[present.length - 1]);
    throw new CheckpointError(`none of the ${present.length} checkpoints is valid; the newest: ${newest.join('; ')}`, {
      where: paths.checkpointsDir,
      next: 'Restore a checkpoint from a copy. To start from scratch, move the folder `checkpoints` away.',
    });
  }
  for (const problem of checkpoint?.problems ?? []) notes.push(`checkpoint skipped: ${problem}`);
  const from = checkpoint?.iteration ?? 0;
  for (const later of present.filter((iteration) => checkpoint !== null && iteration > checkpoint.iteration)) {
    notes.push(`checkpoint ${later} moved to ${quarantine(paths, later)}; the run continues from iteration ${from}`);
  }
  rewindTo(paths, checkpoint === null ? -1 : from);
  repairJudgements(paths, notes);
  const record = makeRecord(request, lock, before, from, allowed);
  writeRecord(paths, record);
  const running = enterRunning(request, paths, from);
  return new RunHandle('resumed', paths, record, record.attempts.length, checkpoint, notes, running, lock);
}

/**
 * Raises ConfigError with every change, unless each change of a result setting is allowed, and each allowed key has changed or was allowed at an earlier
 * attempt. Repeating the same command is therefore valid.
 */
export function checkChanges(
  runName: string,
  changes: readonly SettingChange[],
  allowChanges: readonly string[] = [],
  earlier: readonly RunAttempt[] = [],
): void {
  const refused = changes.filter(({ key }) => !allowChanges.includes(key));
  if (refused.length > 0) {
    const lines = formatChanges(refused).map((line) => `    ${line}`);
    const keys = changes.map(({ key }) => key).join(',');
    throw new ConfigError(
      [`run '${runName}' was started with other settings that affect the result:`, ...lines].join('\n'),
      {
        next: `Restore these settings to continue the run, or choose another run_name. \`editrl run … --fresh\` sets the old run aside and starts from scratch. To change the settings during training: --allow-changes ${keys}`,
      },
    );
  }
  const before = earlier.flatMap((attempt) => attempt.allowed_changes ?? []);
  const idle = allowChanges.filter((allowed) => ![...changes, ...before].some(({ key }) => key === allowed));
  if (idle.length > 0) {
    const changed = changes.map(({ key }) => key).join(', ');
    throw new ConfigError(
      `--allow-changes names ${idle.join(', ')}, but run '${runName}' has the same value${changed === '' ? '' : `; changed: ${changed}`}`,
      {
        where: '--allow-changes',
        next: 'Name only settings that differ from the last start of the run.',
      },
    );
  }
}

/** Raises ConfigError for a disallowed change of a result setting, and notes the allowed ones. A run that `begins` may change anything. */
function checkSettings(
  request: ClaimRequest,
  before: RunRecord,
  changes: readonly SettingChange[],
  begins: boolean,
  notes: string[],
): void {
  const free = begins ? changes.map(({ key }) => key) : [];
  checkChanges(before.run_name, changes, [...free, ...(request.allowChanges ?? [])], before.attempts);
  const how = begins ? 'changed before the first checkpoint' : 'changed as allowed';
  for (const line of formatChanges(changes, 'bare')) notes.push(`${how}: ${line}`);
  const [old, wanted] = [Number(before.settings['num_iterations']), request.settings.num_iterations];
  const listed = changes.some(({ key }) => key === 'num_iterations');
  if (wanted !== old && !listed) notes.push(`num_iterations: ${old} -> ${wanted}`);
}

function makeRecord(
  request: ClaimRequest,
  lock: RunLock,
  before: RunRecord | null,
  from: number,
  allowed: readonly SettingChange[],
): RunRecord {
  const now = new Date().toISOString();
  const attempts = before?.attempts ?? [];
  const config = request.config ?? before?.config;
  const models = request.models ?? before?.models ?? {};
  const experiment = request.experiment ?? before?.experiment;
  return {
    format: 1,
    run_name: request.settings.run_name,
    // Keeps the recorded hash for equal settings, because dependent runs have recorded it.
    hash: before !== null && allowed.length === 0 ? before.hash : request.resultHash,
    import_hash: request.importHash,
    settings: request.settings,
    parents: recordParents(request.settings.base_exp_dir, request.parents ?? [], before?.parents, allowed),
    ...(Object.keys(models).length === 0 ? {} : { models }),
    ...(Object.keys(request.texts ?? {}).length === 0 ? {} : { texts: request.texts }),
    ...(before?.data === undefined ? {} : { data: before.data }),
    ...(config === undefined ? {} : { config }),
    ...(experiment === undefined ? {} : { experiment }),
    ...(before?.fork === undefined ? {} : { fork: before.fork }),
    created_at: before?.created_at ?? now,
    attempts: [
      ...attempts,
      {
        attempt: attempts.length + 1,
        started_at: now,
        from_iteration: from,
        command: request.command,
        host: lock.owner.host,
        pid: lock.owner.pid,
        slurm_job_id: lock.owner.slurm_job_id,
        devices: request.devices ?? [],
        versions: request.versions,
        import_hash: request.importHash,
        ...(allowed.length === 0 ? {} : { allowed_changes: allowed }),
      },
    ],
  };
}

function enterRunning(request: ClaimRequest, paths: RunPaths, iteration: number): RunState {
  return writeState(paths, {
    state: 'running',
    iteration,
    num_iterations: request.settings.num_iterations,
    reason: null,
    stopped_early: false,
  });
}

function repairJudgements(paths: RunPaths, notes: string[]): void {
  const journal = new Journal(paths.judgements);
  journal.close();
  if (journal.repairedBytes > 0) {
    notes.push(`removed an incomplete last line of ${journal.repairedBytes} bytes from judgements.jsonl`);
  }
}

/** Removes temporary files of an earlier owner. */
function cleanDirectory(paths: RunPaths): void {
  cleanCheckpoints(paths);
  try {
    for (const dir of writtenFolders(paths)) {
      for (const name of listOrNothing(dir)) {
        if (name.endsWith('.tmp')) rmSync(join(dir, name), { force: true });
      }
    }
  } catch (cause) {
    throw diskError(paths.dir, cause);
  }
}

function listOrNothing(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw cause;
  }
}
