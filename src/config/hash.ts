/** What makes two runs the same experiment: the fields marked `result`, in a canonical form. */
import { isAbsolute, relative } from 'node:path';
import type { z } from 'zod';
import { sha256 } from '../core/image.js';
import { isObject, leaves, type Leaf } from './schema/walk.js';
import { settingsOfTask } from './schema/tasks.js';
import type { Settings, TrainedSettings } from './settings.js';

/** JSON with sorted keys: equal values give equal text. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key])}`);
  return `{${entries.join(',')}}`;
}

/** Hash over the `result` fields only; num_iterations is left out while no schedule depends on it, because it may grow. */
export function resultHash(settings: Settings): string {
  const entries = [...resultLeaves(settings)]
    .filter(({ mark }) => !(mark.mayGrow === true && growable(settings)))
    .map(({ path, value }) => [path, value] as const);
  return sha256(canonicalJson(Object.fromEntries(entries)));
}

export interface SettingChange {
  /** Dotted path. */
  readonly key: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** The `result` fields that differ; what a resumed run may change (a raised num_iterations) is not listed. */
export function diffSettings(before: Settings, after: Settings): SettingChange[] {
  const old = new Map([...resultLeaves(before)].map((leaf) => [leaf.path, leaf]));
  const now = new Map([...resultLeaves(after)].map((leaf) => [leaf.path, leaf]));
  const changes: SettingChange[] = [];
  for (const key of new Set([...old.keys(), ...now.keys()])) {
    const [was, is] = [old.get(key), now.get(key)];
    if (canonicalJson(was?.value) === canonicalJson(is?.value)) continue;
    const grew = is?.mark.mayGrow === true && growable(after) && Number(is.value) > Number(was?.value);
    if (!grew) changes.push({ key, before: was?.value ?? null, after: is?.value ?? null });
  }
  return changes;
}

function growable(settings: Settings): boolean {
  // What another trainer does with the number is not known, but it is told the same one at every resume.
  if (settings.task === 'external') return true;
  // Exhaustive on purpose: another schedule has to say whether it depends on the number of iterations.
  const independent: Record<TrainedSettings['optimizer']['schedule'], boolean> = { constant: true };
  return independent[settings.optimizer.schedule];
}

function* resultLeaves(settings: Settings): Generator<Leaf> {
  const schema: z.ZodType = settingsOfTask[settings.task];
  for (const leaf of leaves(schema, settings)) {
    if (leaf.effect !== 'result') continue;
    yield leaf.mark.relativeTo === 'data.dir' && settings.task !== 'external'
      ? { ...leaf, value: belowFolder(settings.data.dir, leaf.value) }
      : leaf;
  }
}

/** A path below the folder, relative to it, so that moving the data leaves the hash alone; any other path as it is. */
function belowFolder(folder: string, path: unknown): unknown {
  if (typeof path !== 'string' || isAbsolute(path) !== isAbsolute(folder)) return path;
  const below = relative(folder, path);
  return below.startsWith('..') ? path : below;
}
