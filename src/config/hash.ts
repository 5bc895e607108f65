/** What makes two runs the same experiment: the fields marked `result`, in a canonical form. */
import { isAbsolute, relative } from 'node:path';
import type { z } from 'zod';
import { sha256 } from '../core/image.js';
import { isObject, leaves, markOf, type Leaf } from './schema/walk.js';
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
  return hashOfSections(settings, (section) => resultText(settings, section));
}

/** The hash from the texts of the sections, which a caller that hashes many settings keeps. */
export function hashOfSections(settings: Settings, textOf: (section: string) => string): string {
  const grows = growable(settings);
  const mayGrow = (section: string): boolean => markOf(sectionSchema(settings, section)).mayGrow === true;
  // Sections in sorted order give sorted paths: the dot that follows a section's name sorts before whatever a name holds.
  const texts = Object.keys(settings)
    .sort()
    .filter((section) => !(grows && mayGrow(section)))
    .map(textOf);
  return sha256(`{${texts.filter((text) => text !== '').join(',')}}`);
}

/** The `result` fields of one section, as the text that is hashed; it depends on no other section. */
export function resultText(settings: Settings, section: string): string {
  const entries = [...resultLeaves(settings, section)].map(({ path, value }) => [path, value] as const);
  return canonicalJson(Object.fromEntries(entries)).slice(1, -1);
}

function sectionSchema(settings: Settings, section: string): z.ZodType {
  return (settingsOfTask[settings.task].shape as Readonly<Record<string, z.ZodType>>)[section];
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

function* resultLeaves(settings: Settings, section: string | null = null): Generator<Leaf> {
  const found =
    section === null
      ? leaves(settingsOfTask[settings.task], settings)
      : leaves(sectionSchema(settings, section), (settings as Record<string, unknown>)[section], [section]);
  for (const leaf of found) {
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
