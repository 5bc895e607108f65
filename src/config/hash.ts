/** What makes two runs the same experiment: the fields marked `result`, in a canonical form. */
import { isAbsolute, relative } from 'node:path';
import type { z } from 'zod';
import { sha256 } from '../core/image.js';
import { isTrainable, recipeOf } from './recipes.js';
import type { RunReference } from '../schema/model.js';
import { getPath } from '../schema/paths.js';
import type { RunSettings } from '../schema/run.js';
import { isObject, leaves, markOf, type Leaf } from '../schema/walk.js';
import { growable } from './growth.js';
import { countedText, describeText, fileDigest, type FileKind, type TextDigests } from './texts.js';

/** JSON with sorted keys: equal values give equal text. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key])}`);
  return `{${entries.join(',')}}`;
}

/**
 * Hash over the `result` fields only, without idle sections. num_iterations is left out while no
 * schedule depends on it, because it may grow. Reads the text files that settings name, since their content counts.
 */
export function resultHash(settings: RunSettings): string {
  return hashOfSections(settings, (section) => resultText(settings, section));
}

/** The hash from the texts of the sections, which callers that hash many settings cache. */
export function hashOfSections(settings: RunSettings, textOf: (section: string) => string): string {
  const grows = growable(settings);
  const mayGrow = (section: string): boolean => markOf(sectionSchema(settings, section)).mayGrow === true;
  // Sections in sorted order give sorted paths: the dot after a section's name sorts before any character of a name.
  const texts = Object.keys(settings)
    .sort()
    .filter((section) => !(grows && mayGrow(section)) && !isIdleSection(section, settings))
    .map(textOf);
  return sha256(`{${texts.filter((text) => text !== '').join(',')}}`);
}

/** The marked fields of one section. */
export function sectionLeaves(settings: RunSettings, section: string): Leaf[] {
  const value = (settings as unknown as Readonly<Record<string, unknown>>)[section];
  return leaves(sectionSchema(settings, section), value, section);
}

/** The `result` fields of a section as the text to hash; depends on no other section. */
export function resultText(
  settings: RunSettings,
  section: string,
  found: readonly Leaf[] = sectionLeaves(settings, section),
): string {
  const texts: (readonly [string, string])[] = [];
  for (const leaf of found) {
    if (leaf.effect !== 'result') continue;
    const { counts } = countedValue(settings, leaf, currentDigest);
    texts.push([leaf.path, canonicalJson(counts)]);
  }
  return texts
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([path, text]) => `${JSON.stringify(path)}:${text}`)
    .join(',');
}

function sectionSchema(settings: RunSettings, section: string): z.ZodType {
  return recipeOf(settings).schema.shape[section] as z.ZodType;
}

export interface SettingChange {
  /** Dotted path. */
  readonly key: string;
  readonly before: unknown;
  readonly after: unknown;
}

/**
 * The `result` fields that differ, without those that a resumed run may change (a raised num_iterations) and those idle on both sides. `texts` are
 * the digests that text files had when `before` was recorded; without them such a file is known only by its path.
 */
export function diffSettings(before: RunSettings, after: RunSettings, texts?: TextDigests): SettingChange[] {
  const old = counted(before, texts === undefined ? null : (key) => texts[key] ?? null);
  const now = counted(after, texts === undefined ? null : currentDigest);
  const changes: SettingChange[] = [];
  for (const key of new Set([...old.keys(), ...now.keys()])) {
    const [was, is] = [old.get(key), now.get(key)];
    if (canonicalJson(was?.counts) === canonicalJson(is?.counts) || isSamePath(was, is)) continue;
    if (isIdle(key, was, before) && isIdle(key, is, after)) continue;
    const grew = is?.mark.mayGrow === true && growable(after) && Number(is.value) > Number(was?.value);
    if (!grew) changes.push({ key, before: was?.shown ?? null, after: is?.shown ?? null });
  }
  return changes;
}

/** Whether it is the same written path, whatever folder each side resolves it in. */
function isSamePath(was: CountedLeaf | undefined, is: CountedLeaf | undefined): boolean {
  return is?.mark.relativeTo !== undefined && was?.value === is.value;
}

type DigestOf = (key: string, file: string, kind: FileKind) => string | null;

/** The `result` fields by path; with a null `digestOf`, text files count by their paths. */
function counted(settings: RunSettings, digestOf: DigestOf | null): ReadonlyMap<string, CountedLeaf> {
  const found = leaves(recipeOf(settings).schema, settings).filter(({ effect }) => effect === 'result');
  return new Map(found.map((leaf) => [leaf.path, { ...leaf, ...countedValue(settings, leaf, digestOf) }]));
}

/** Whether a field means nothing to these settings; one that they do not have, such as that of another term, is as idle as its section. */
function isIdle(key: string, leaf: Leaf | undefined, settings: RunSettings): boolean {
  const idle = leaf?.mark.idle?.((path) => getPath(settings, path)) === true;
  return idle || isIdleSection(key.split('.', 1)[0], settings);
}

function isIdleSection(section: string, settings: RunSettings): boolean {
  const schema = recipeOf(settings).schema.shape;
  if (!Object.hasOwn(schema, section)) return false;
  return markOf(schema[section] as z.ZodType).idle?.((path) => getPath(settings, path)) === true;
}

interface CountedLeaf extends Leaf {
  /** The part of the value that decides the result; it is hashed and compared. */
  readonly counts: unknown;
  /** The value as shown to people. */
  readonly shown: unknown;
}

const currentDigest: DigestOf = (_key, file, kind) => fileDigest(kind, file);

function countedValue(
  settings: RunSettings,
  { path, value, mark }: Leaf,
  digestOf: DigestOf | null,
): Pick<CountedLeaf, 'counts' | 'shown'> {
  const same = (counts: unknown): Pick<CountedLeaf, 'counts' | 'shown'> => ({ counts, shown: counts });
  // It is unknown what another trainer does with its own parameters.
  if (!isTrainable(settings)) return same(value);
  if (mark.relativeTo !== undefined) return same(belowFolder(getPath(settings, mark.relativeTo), value));
  if (mark.file !== undefined && typeof value === 'string' && digestOf !== null) {
    const digest = digestOf(path, value, mark.file);
    return { counts: countedText(value, digest), shown: describeText(mark.file, value, digest) };
  }
  return same(isRunReference(value) ? { run: value.run } : value);
}

/** A run is identified by its name; the path of its config depends on the config that refers to it. */
function isRunReference(value: unknown): value is RunReference {
  return isObject(value) && 'run' in value && 'config' in value;
}

/** A path inside the folder, relative to it, so that moving the data does not change the hash; any other path as it is. */
export function belowFolder<T>(folder: unknown, path: T): T | string {
  if (typeof folder !== 'string' || typeof path !== 'string' || isAbsolute(path) !== isAbsolute(folder)) return path;
  const below = relative(folder, path);
  return below.startsWith('..') ? path : below;
}
