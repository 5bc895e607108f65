/** Settings that decide the result and changed while a run trained, which `--allow-changes` permits. */
import { isDeepStrictEqual } from 'node:util';
import { getPath, setPath } from '../schema/paths.js';
import type { ChangedSetting, PlainObject, RunRecord } from './record.js';

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
