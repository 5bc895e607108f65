/**
 * Records the parents of a run. A parent retrained with other settings counts as a change. So does another of its checkpoints: the first used checkpoint
 * is pinned, because its weights are the run's start and KL reference.
 */
import type { SettingChange } from '../../config/hash.js';
import { CheckpointError } from '../../core/errors.js';
import {
  checkpointProblems,
  latestWhole,
  listCheckpoints,
  manifestDigest,
  type WholeCheckpoint,
} from '../checkpoints.js';
import { RunPaths } from '../paths.js';
import { readRecord, type PlainObject, type RecordedParent } from '../record.js';

/** The name of a parent for `--allow-changes`. */
export function parentKey(run: string): string {
  return `parents.${run}`;
}

/**
 * The parents of a run with their hashes, or with the recorded hash if the folder is gone. A checkpoint pinned in `before` stays pinned if the hash is
 * equal and the parent is not among the allowed changes.
 */
export function recordParents(
  baseExpDir: string,
  references: readonly PlainObject[],
  before: readonly PlainObject[] = [],
  allowed: readonly SettingChange[] = [],
): RecordedParent[] {
  return references.map((reference) => {
    const run = String(reference['run']);
    const known = parentIn(before, run);
    const hash = readRecord(new RunPaths(baseExpDir, run))?.hash ?? known?.hash;
    const stays = known?.hash === hash && !allowed.some(({ key }) => key === parentKey(run));
    const { iteration, manifest } = stays ? (known ?? {}) : {};
    return {
      ...reference,
      run,
      ...(hash === undefined ? {} : { hash }),
      ...(iteration === undefined ? {} : { iteration }),
      ...(manifest === undefined ? {} : { manifest }),
    };
  });
}

function parentIn(recorded: readonly PlainObject[], run: string): Partial<RecordedParent> | undefined {
  return (recorded as readonly Partial<RecordedParent>[]).find((parent) => parent.run === run);
}

/**
 * The parent checkpoint that a run uses: the pinned one, else the newest complete one. Raises CheckpointError if the pinned one is missing, damaged or
 * different. It is never replaced without permission.
 */
export function parentCheckpoint(baseExpDir: string, run: string, recorded: readonly PlainObject[]): WholeCheckpoint {
  const paths = new RunPaths(baseExpDir, run);
  const { iteration, manifest } = parentIn(recorded, run) ?? {};
  if (iteration === undefined) {
    const newest = latestWhole(paths);
    if (newest !== null) return newest;
    throw new CheckpointError(`run ${run} has no complete checkpoint`, {
      where: paths.dir,
      next: 'Run its config again, then this one.',
    });
  }
  const dir = paths.checkpoint(iteration);
  const problems = checkpointProblems(dir, iteration);
  const found = manifestDigest(dir);
  if (problems.length === 0 && manifest !== undefined && found !== manifest) {
    problems.push(`its manifest is ${short(found)} instead of ${short(manifest)}`);
  }
  if (problems.length === 0) return { iteration, dir, problems };
  throw new CheckpointError(
    `this run depends on the checkpoint of iteration ${iteration} of run ${run}, which has changed: ${problems.join('; ')}`,
    {
      where: dir,
      next: `Restore the checkpoint from a copy. To use the newest one of ${run} from now on, move this one away and add --allow-changes ${parentKey(run)}.`,
    },
  );
}

/**
 * The recorded parents among `runs` whose folders now contain runs with other settings. A parent without a folder or without a recorded hash counts as
 * unchanged. Raises RunError for an unreadable record.
 */
export function parentChanges(
  baseExpDir: string,
  recorded: readonly PlainObject[],
  runs: readonly string[],
): SettingChange[] {
  return (recorded as readonly Partial<RecordedParent>[]).flatMap(({ run, hash }) => {
    if (run === undefined || hash === undefined || !runs.includes(run)) return [];
    const now = readRecord(new RunPaths(baseExpDir, run))?.hash;
    if (now === undefined || now === hash) return [];
    return [{ key: parentKey(run), before: ofHash(hash), after: ofHash(now) }];
  });
}

/**
 * The changes for a continued run: `changes`, and the existing parents among `runs` whose pinned checkpoint is missing or has another manifest, because
 * the parent continued or was retrained. Does not read checkpoint files. Raises RunError for an unreadable record.
 */
export function withMovedPins(
  changes: readonly SettingChange[],
  baseExpDir: string,
  recorded: readonly PlainObject[],
  runs: readonly string[],
): SettingChange[] {
  const moved = (recorded as readonly Partial<RecordedParent>[]).flatMap(({ run, iteration, manifest }) => {
    if (run === undefined || iteration === undefined || !runs.includes(run)) return [];
    if (changes.some(({ key }) => key === parentKey(run))) return [];
    const paths = new RunPaths(baseExpDir, run);
    if (readRecord(paths) === null) return [];
    const found = manifestDigest(paths.checkpoint(iteration));
    if (found !== null && (manifest === undefined || found === manifest)) return [];
    const newest = listCheckpoints(paths).at(-1);
    const after = found === null ? newest : iteration;
    return [
      {
        key: parentKey(run),
        before: ofCheckpoint(iteration, manifest),
        after: after === undefined ? 'no checkpoint' : ofCheckpoint(after, found),
      },
    ];
  });
  return [...changes, ...moved];
}

function ofCheckpoint(iteration: number, manifest?: string | null): string {
  return `checkpoint of iteration ${iteration}${typeof manifest === 'string' ? ` (${short(manifest)})` : ''}`;
}

function short(digest: string | null): string {
  return digest === null ? 'missing' : digest.slice(0, 12);
}

function ofHash(hash: string): string {
  return `settings ${hash.slice(0, 12)}`;
}
