/**
 * The runs that a run starts from, as they were. A parent that is retrained with other settings is a different start. So is another of its
 * checkpoints than the one used first, which is pinned: its weights are the run's start and KL reference.
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
 * The parents that a run is about to use, with the hash of each, or the recorded hash while its folder is gone. The checkpoint that `before` pinned
 * stays if the hash is equal, unless the parent is among the allowed changes.
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
 * The checkpoint of a parent that a run uses: the pinned one, else the newest whole one. Raises CheckpointError when the pinned one is missing, not
 * whole or different; it is never replaced by another without being asked.
 */
export function parentCheckpoint(baseExpDir: string, run: string, recorded: readonly PlainObject[]): WholeCheckpoint {
  const paths = new RunPaths(baseExpDir, run);
  const { iteration, manifest } = parentIn(recorded, run) ?? {};
  if (iteration === undefined) {
    const newest = latestWhole(paths);
    if (newest !== null) return newest;
    throw new CheckpointError(`run ${run} has no whole checkpoint`, {
      where: paths.dir,
      next: 'Run its config again, then this one.',
    });
  }
  const dir = paths.checkpoint(iteration);
  const problems = checkpointProblems(dir, iteration);
  const found = manifestDigest(dir);
  if (problems.length === 0 && manifest !== undefined && found !== manifest) {
    problems.push(`its manifest is ${short(found)}, that of the one which was used is ${short(manifest)}`);
  }
  if (problems.length === 0) return { iteration, dir, problems };
  throw new CheckpointError(
    `the checkpoint of iteration ${iteration} of run ${run}, which this run starts from, is not there as it was: ${problems.join('; ')}`,
    {
      where: dir,
      next: `Bring it back from a copy. To start from the newest one of ${run} from here on, move this one away and give --allow-changes ${parentKey(run)}.`,
    },
  );
}

/**
 * The recorded parents among `runs` whose folders now hold runs with other settings than those that were used. A parent whose folder is gone, or
 * whose hash was not recorded, counts as unchanged. Raises RunError for a record that cannot be read.
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
 * What changes for a run that continues: `changes`, and the parents among `runs` whose pinned checkpoint is gone or has another manifest although the
 * run itself exists, because it trained on or was retrained. Does not read the checkpoint's files. Raises RunError for a record that cannot be read.
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
