/** Hashes and comparisons of settings, over the fields marked `result` in canonical form. */
import { isAbsolute, relative } from 'node:path';
import type { z } from 'zod';
import { readFileSync } from 'node:fs';
import { sha256 } from '../core/images/image.js';
import { isTrainable, recipeOf, rewardForms } from './recipes.js';
import type { RunReference } from './schema/model.js';
import { getPath, isObject, leaves, markOf, type Leaf } from '../core/schema/walk.js';
import type { RunSettings, TrainedSettings } from './schema/run.js';
import type { Mark } from '../core/schema/mark.js';

/** JSON with sorted keys. Equal values give equal text. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!isObject(value)) return JSON.stringify(value ?? null);
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(value[key])}`);
  return `{${entries.join(',')}}`;
}

/**
 * Hash over the `result` fields, without idle sections. num_iterations is left out if it may grow because no schedule depends on it. Reads the text
 * files that settings name, because their contents count.
 */
export function resultHash(settings: RunSettings): string {
  return hashOfSections(settings, (section) => resultText(settings, section));
}

/** The hash from the texts of the sections. Callers that hash many settings cache these texts. */
export function hashOfSections(settings: RunSettings, textOf: (section: string) => string): string {
  const grows = growable(settings);
  const mayGrow = (section: string): boolean => markOf(sectionSchema(settings, section)).mayGrow === true;
  // Sorted sections give sorted paths: the dot after a section's name sorts before all characters of names.
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

/** The text to hash of a section's `result` fields. It depends on no other section. */
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
 * The `result` fields that differ, without changes that a resumed run allows (a raised num_iterations) and fields that are idle on both sides. `texts`:
 * the digests of text files when `before` was recorded. Without them, such files are compared by path.
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

/** Whether both sides have the same relative path, in whatever folder. */
function isSamePath(was: CountedLeaf | undefined, is: CountedLeaf | undefined): boolean {
  return is?.mark.relativeTo !== undefined && was?.value === is.value;
}

type DigestOf = (key: string, file: string, kind: FileKind) => string | null;

/** The `result` fields by path. With a null `digestOf`, text files count by their paths. */
function counted(settings: RunSettings, digestOf: DigestOf | null): ReadonlyMap<string, CountedLeaf> {
  const found = leaves(recipeOf(settings).schema, settings).filter(({ effect }) => effect === 'result');
  return new Map(found.map((leaf) => [leaf.path, { ...leaf, ...countedValue(settings, leaf, digestOf) }]));
}

/** Whether a field has no effect with these settings. A missing field, such as one of another term, is as idle as its section. */
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
  /** The part of the value that affects the result. It is hashed and compared. */
  readonly counts: unknown;
  /** The value for messages. */
  readonly shown: unknown;
}

const currentDigest: DigestOf = (_key, file, kind) => fileDigest(kind, file);

function countedValue(
  settings: RunSettings,
  { path, value, mark }: Leaf,
  digestOf: DigestOf | null,
): Pick<CountedLeaf, 'counts' | 'shown'> {
  const same = (counts: unknown): Pick<CountedLeaf, 'counts' | 'shown'> => ({ counts, shown: counts });
  // The effects of a foreign trainer's parameters are unknown.
  if (!isTrainable(settings)) return same(value);
  if (mark.relativeTo !== undefined) return same(belowFolder(getPath(settings, mark.relativeTo), value));
  if (mark.file !== undefined && typeof value === 'string' && digestOf !== null) {
    const digest = digestOf(path, value, mark.file);
    return { counts: countedText(value, digest), shown: describeText(mark.file, value, digest) };
  }
  return same(isRunReference(value) ? { run: value.run } : value);
}

/** A run is identified by its name. The path of its config depends on the referring config. */
function isRunReference(value: unknown): value is RunReference {
  return isObject(value) && 'run' in value && 'config' in value;
}

/** A path inside the folder, relative to it, so that moving the data does not change the hash. Other paths stay unchanged. */
export function belowFolder<T>(folder: unknown, path: T): T | string {
  if (typeof folder !== 'string' || typeof path !== 'string' || isAbsolute(path) !== isAbsolute(folder)) return path;
  const below = relative(folder, path);
  return below.startsWith('..') ? path : below;
}

export type FileKind = NonNullable<Mark['file']>;

/** Digests of files by the dotted paths of the settings that name them. Null for a file that could not be read. */
export type TextDigests = Readonly<Record<string, string | null>>;

/** SHA-256 of a file's contents, in hexadecimal. Null if it cannot be read, which the user of the file reports. */
export function fileDigest(kind: FileKind, file: string): string | null {
  return kind === 'text' ? textDigest(file) : rewardForms().moduleDigest(file);
}

/** Digest of the text without surrounding white space. */
function textDigest(file: string): string | null {
  try {
    return sha256(Buffer.from(readFileSync(file, 'utf8').trim()));
  } catch {
    return null;
  }
}

/** The current digests of all files that settings name. */
export function textDigests(settings: RunSettings): TextDigests {
  return Object.fromEntries(
    leaves(recipeOf(settings).schema, settings).flatMap(({ path, value, mark }) =>
      mark.file !== undefined && typeof value === 'string' ? [[path, fileDigest(mark.file, value)]] : [],
    ),
  );
}

/** Identifies a file by its digest, or by its path if there is none. */
export function countedText(file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return digest === null ? { unread: file } : { sha256: digest };
}

/** Describes a file for messages. */
export function describeText(kind: FileKind, file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return `${file} (${digest === null ? 'not readable' : `${kind} ${digest.slice(0, 12)}`})`;
}

/** Optimizer steps of a whole run. */
export function optimizerSteps(settings: TrainedSettings): number {
  return settings.num_iterations * recipeOf(settings).stepsPerIteration(settings);
}

/** Whether raising num_iterations leaves the results of earlier iterations unchanged. */
export function growable(settings: RunSettings): boolean {
  // The effect of the number on a foreign trainer is unknown, but every resume passes the same one.
  if (!isTrainable(settings)) return true;
  // Exhaustive on purpose: a new schedule must state whether it depends on the number of iterations.
  const independent: Record<TrainedSettings['optimizer']['schedule'], boolean> = {
    constant: true,
    linear: false,
    cosine: false,
  };
  return independent[settings.optimizer.schedule];
}

/** Settings. `texts`: the digests of the text files that they name, if not the current ones. */
export interface Side {
  readonly settings: RunSettings;
  readonly texts?: TextDigests;
}

export interface Difference {
  /** Dotted path. */
  readonly key: string;
  /** Absent if that side has no such key. */
  readonly a?: unknown;
  readonly b?: unknown;
  /** `result` if a resume would reject the change in either direction. */
  readonly effect: 'result' | 'operation';
}

/** Every key whose values differ or that only one side has, sorted. A text file is compared by content. */
export function settingsDifferences(a: Side, b: Side): Difference[] {
  const [left, right] = [valuesOf(a), valuesOf(b)];
  const deciding = new Set([...changesOf(a, b), ...changesOf(b, a)]);
  return [...new Set([...left.keys(), ...right.keys()])].sort().flatMap((key) => {
    const [was, is] = [left.get(key), right.get(key)];
    if (was !== undefined && is !== undefined && canonicalJson(was.value) === canonicalJson(is.value)) return [];
    return [
      {
        key,
        ...(was === undefined ? {} : { a: was.value }),
        ...(is === undefined ? {} : { b: is.value }),
        // A key of only one side gets its effect from the schema of that side. Comparing would miss it, because null counts as absent.
        effect: (was === undefined || is === undefined ? (was ?? is)?.effect === 'result' : deciding.has(key))
          ? 'result'
          : 'operation',
      },
    ];
  });
}

/** The keys that a resume would report for a run with the settings of one side and a command with the other. */
function changesOf({ settings, texts = textDigests(settings) }: Side, to: Side): string[] {
  return diffSettings(settings, to.settings, texts).map(({ key }) => key);
}

function valuesOf({
  settings,
  texts = textDigests(settings),
}: Side): ReadonlyMap<string, { value: unknown; effect: Difference['effect'] }> {
  return new Map(
    leaves(recipeOf(settings).schema, settings).map(({ path, value, effect, mark }) => [
      path,
      { value: mark.file !== undefined ? describeText(mark.file, value, texts[path] ?? null) : value, effect },
    ]),
  );
}
