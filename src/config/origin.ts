/**
 * The file and line that set a key, found in the texts of the files. Jsonnet reports no provenance, so this is the last place of the key in the order in
 * which the texts are merged. A key with a computed name, or with several places in a file, has no single line.
 */
import { resolve } from 'node:path';
import { displayPath, lineAt, resolveImport } from './jsonnet.js';
import { COMPUTED, readJsonnet, type FieldToken, type ImportToken, type JsonnetText } from './jsonnet_text.js';

/** A part of a composition: the fields of a file below a path, such as `axes.seed.7`. */
export interface Layer {
  /** Its name in messages. Null if its file is enough. */
  readonly name: string | null;
  /** The file that it is written in. */
  readonly file: string;
  /** The fields around it in the file. */
  readonly prefix: readonly string[];
}

/** The texts of values. */
export type Composed = Pick<Origin, 'layers' | 'sources'>;

/** The composition of values. */
export interface Origin {
  /** The file that messages are about. */
  readonly file: string;
  /** In merge order. */
  readonly layers: readonly Layer[];
  /** `a.b=value`, over all of them. */
  readonly sets: readonly string[];
  /** The texts of all files. */
  readonly sources: ReadonlyMap<string, string>;
  /** Whether the composition has a key, so that its value is not a default. */
  readonly has: (key: string) => boolean;
}

/** The place that set each of the given keys. '' for a key that no text sets. Keys are dotted, and a number is an index in a list. */
export function placesOf(keys: readonly string[], { file, layers, sets, sources, has }: Origin): string[] {
  const texts = new Texts(sources);
  return keys.map((key) => {
    if (isSet(key, sets)) return '--set';
    if (!has(key)) return '';
    const path = key.split('.').filter((part) => !/^\d+$/.test(part));
    for (const find of [writtenAt, inLocal]) {
      for (const { name, file: own, prefix } of [...layers].reverse()) {
        const found = find(texts.fieldsOf(resolve(own)), [...prefix, ...path], prefix.length);
        if (found.length === 0) continue;
        const where = placeOf(found);
        const among = found[0].file === resolve(own) ? name : (name ?? displayPath(own));
        return among === null || among === displayPath(file) ? where : `${among}, ${where}`;
      }
    }
    return '';
  });
}

/** A section that a file replaces instead of merging into it. */
export interface Replacement {
  readonly section: string;
  /** `FILE:LINE` of the replacement. */
  readonly where: string;
}

/** The replacement of a section around a key, which may have lost the key. Null if there is none. */
export function replacementOf(key: string, { layers, sources }: Composed): Replacement | null {
  const texts = new Texts(sources);
  const parts = key.split('.');
  for (let depth = parts.length - 1; depth > 0; depth -= 1) {
    const section = parts.slice(0, depth);
    const fields = [...layers].reverse().flatMap(({ file, prefix }) => {
      const own = [...texts.fieldsOf(resolve(file))];
      return own.filter(({ path, isLocal, name }) => {
        return !isLocal && name !== COMPUTED && agree(path, [...prefix, ...section]);
      });
    });
    const [outer] = fields;
    if (fields.length < 2 || outer.merges || !outer.opensObject) continue;
    return { section: section.join('.'), where: placeOf([outer]) };
  }
  return null;
}

/** Whether `--set` sets a key or a section around it. */
export function isSet(key: string, sets: readonly string[]): boolean {
  return sets.some((text) => {
    const path = text.slice(0, text.indexOf('='));
    return key === path || key.startsWith(`${path}.`);
  });
}

/** A field in a file. */
export interface PlacedField extends Pick<FieldToken, 'name' | 'merges' | 'opensObject'> {
  readonly file: string;
  readonly line: number;
  /** The names of the surrounding fields, through imports, and its own. `*` for a computed one. */
  readonly path: readonly string[];
  readonly isLocal: boolean;
}

/** The files of a composition, read when needed. */
export class Texts {
  readonly #read = new Map<string, JsonnetText>();

  constructor(private readonly sources: ReadonlyMap<string, string>) {}

  /** The fields of a file and of its imports, the last merged one first. */
  *fieldsOf(file: string, around: readonly string[] = [], seen = new Set<string>()): Generator<PlacedField> {
    const text = this.sources.get(file);
    const visit = `${around.join('.')} ${file}`;
    if (text === undefined || seen.has(visit)) return;
    seen.add(visit);
    const { imports, fields } = this.#textOf(file, text);
    const found = [...imports, ...fields].sort((a, b) => b.at - a.at);
    for (const token of found) {
      const path = [...around, ...token.place.path];
      if (isImport(token)) {
        const target = token.kind === 'import' ? resolveImport(file, token.target) : null;
        if (target !== null) yield* this.fieldsOf(target, path, seen);
        continue;
      }
      const { name, merges, opensObject, place, at } = token;
      yield { name, merges, opensObject, file, line: lineAt(text, at), path: [...path, name], isLocal: place.isLocal };
    }
  }

  #textOf(file: string, text: string): JsonnetText {
    const known = this.#read.get(file) ?? readJsonnet(text);
    this.#read.set(file, known);
    return known;
  }
}

function isImport(token: FieldToken | ImportToken): token is ImportToken {
  return 'target' in token;
}

/**
 * The fields of one file that set a path: the path itself, or a surrounding field whose value is not an object literal. The first `fixed` names do not
 * count as surrounding fields.
 */
function writtenAt(fields: Iterable<PlacedField>, path: readonly string[], fixed: number): PlacedField[] {
  const found: PlacedField[] = [];
  for (const field of fields) {
    if (field.isLocal || field.path.length > path.length || field.path.length <= fixed) continue;
    if (!agree(field.path, path.slice(0, field.path.length))) continue;
    const isWhole = field.path.length === path.length;
    if (!isWhole && field.opensObject) continue;
    if (found.length > 0 && (found[0].file !== field.file || found[0].path.length !== field.path.length)) break;
    found.push(field);
    if (!isWhole) break;
  }
  return found;
}

/** The fields of a file's local objects whose name is the last part of a path. Other fields may use their values. */
function inLocal(fields: Iterable<PlacedField>, path: readonly string[]): PlacedField[] {
  const found: PlacedField[] = [];
  for (const field of fields) {
    if (!field.isLocal || !agree(field.path, path.slice(-field.path.length))) continue;
    if (found.length > 0 && found[0].file !== field.file) break;
    found.push(field);
  }
  return found;
}

function agree(path: readonly string[], other: readonly string[]): boolean {
  return path.length === other.length && path.every((name, at) => name === other[at] || name === COMPUTED);
}

/** `FILE:LINE`, or `FILE:LINE or LINE`. The file alone for a computed name. */
function placeOf(found: readonly PlacedField[]): string {
  const file = displayPath(found[0].file);
  if (found.some(({ name }) => name === COMPUTED)) return file;
  const lines = [...new Set(found.map(({ line }) => line))].sort((a, b) => a - b);
  return `${file}:${lines.join(' or ')}`;
}
