/** The runs that a run starts from, as they were: a parent that is made anew with other settings is another start. */
import type { SettingChange } from '../config/hash.js';
import { RunPaths } from './paths.js';
import { readRecord, type PlainObject, type RecordedParent } from './record.js';

/** What `--allow-changes` calls a parent. */
export function parentKey(run: string): string {
  return `parents.${run}`;
}

/** The parents that a run is about to use, with the hash of each; the iteration that `before` noted stays with an equal hash. */
export function recordParents(
  baseExpDir: string,
  references: readonly PlainObject[],
  before: readonly PlainObject[] = [],
): RecordedParent[] {
  return references.map((reference) => {
    const run = String(reference['run']);
    const hash = readRecord(new RunPaths(baseExpDir, run))?.hash;
    const known = (before as readonly Partial<RecordedParent>[]).find((parent) => parent.run === run);
    const iteration = known?.hash === hash ? known?.iteration : undefined;
    return {
      ...reference,
      run,
      ...(hash === undefined ? {} : { hash }),
      ...(iteration === undefined ? {} : { iteration }),
    };
  });
}

/**
 * The recorded parents among `runs` whose folders hold runs of other settings than those that were used. One whose folder is
 * gone, or of which no hash was noted, has not changed. Raises RunError for a record that cannot be read.
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

function ofHash(hash: string): string {
  return `settings ${hash.slice(0, 12)}`;
}
