/**
 * Which layer of a composition gave a value (the file, an overlay, an axis, an override, `--set`), and in which line. Jsonnet reports no provenance,
 * so both are found by evaluating: the layer is the one from which on the composition has the value; the line is the one whose key, when renamed,
 * takes the value away. What cannot be shown this way is not claimed.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { ConfigError } from '../core/errors.js';
import { LimitError } from './interpreter.js';
import { displayPath, evaluateSnippet, fieldsNamed, importClosure, type Environment } from './jsonnet.js';

/** A part of a composition. */
export interface Layer {
  /** Its name for people; null if its file is enough. */
  readonly name: string | null;
  /** The file that it is written in. */
  readonly file: string;
  /** Its Jsonnet expression, given a function that writes the import of a file. */
  readonly expression: (importOf: (path: string) => string) => string;
}

/** The composition that values came from. */
export interface Origin {
  /** The file that messages are about. */
  readonly file: string;
  /** In merge order. */
  readonly layers: readonly Layer[];
  /** `a.b=value`, over all of them. */
  readonly sets: readonly string[];
  readonly env: Environment;
}

/** Maximum number of keys looked up for one message. */
const MOST_KEYS = 20;
/** Maximum number of places at which one key is tried in the files of its layer. */
const MOST_PLACES = 8;

/**
 * Where each of the given keys was set, for a person to read; '' when no layer sets it. Keys are dotted; a number is an index in a list. At most the
 * first `most` keys are looked up.
 */
export async function placesOf(keys: readonly string[], origin: Origin, most = MOST_KEYS): Promise<string[]> {
  const { sets, layers } = origin;
  const looked = [...new Set(keys)].filter((key) => !isSet(key, sets)).slice(0, most);
  const found = layers.length === 0 ? new Map<string, string>() : await placesInLayers(looked, origin);
  return keys.map((key) => (isSet(key, sets) ? '--set' : (found.get(key) ?? '')));
}

/** Whether `--set` gives the value of a key, or of something that contains it. */
export function isSet(key: string, sets: readonly string[]): boolean {
  return sets.some((text) => {
    const path = text.slice(0, text.indexOf('='));
    return key === path || key.startsWith(`${path}.`);
  });
}

type Found = { readonly value: unknown } | 'nothing' | 'unknown';

async function placesInLayers(keys: readonly string[], origin: Origin): Promise<Map<string, string>> {
  const { layers } = origin;
  const places = new Map<string, string>();
  // The value of a key after each layer.
  const composed = layers.map((_, index) => compose(layers.slice(0, index + 1)));
  const all = await lookUp(
    keys.flatMap((key) => composed.map((expression) => ({ expression, key }))),
    origin,
  );
  const probes: { readonly key: string; readonly layer: number; readonly place: Place; readonly value: unknown }[] = [];
  keys.forEach((key, at) => {
    const after = all.slice(at * layers.length, (at + 1) * layers.length);
    const layer = settingLayer(after);
    const last = after[after.length - 1];
    if (layer === null || typeof last === 'string') return;
    places.set(key, labelOf(layers[layer], null, origin));
    for (const place of literalPlaces(key, layers[layer].file)) {
      probes.push({ key, layer, place, value: last.value });
    }
  });
  const without = await renamed(
    probes.map(({ key, place }) => ({ key, place })),
    origin,
  );
  const proven = probes.filter(({ value }, i) => {
    const now = without[i];
    return now !== 'unknown' && (now === 'nothing' || JSON.stringify(now.value) !== JSON.stringify(value));
  });
  for (const key of keys) {
    const own = proven.filter((probe) => probe.key === key);
    if (own.length === 1) places.set(key, labelOf(layers[own[0].layer], own[0].place, origin));
  }
  return places;
}

/** The first layer from which on the value is the final one; null if there is no final value. */
function settingLayer(after: readonly Found[]): number | null {
  const last = after[after.length - 1];
  if (typeof last === 'string') return null;
  const text = JSON.stringify(last.value);
  let layer = after.length - 1;
  while (layer > 0) {
    const before = after[layer - 1];
    if (typeof before === 'string' || JSON.stringify(before.value) !== text) break;
    layer--;
  }
  return layer;
}

function labelOf(layer: Layer, place: Place | null, { file }: Origin): string {
  const where = place === null ? displayPath(layer.file) : `${displayPath(place.file)}:${place.line}`;
  const elsewhere = place !== null && place.file !== resolve(layer.file);
  const name = layer.name ?? (elsewhere ? displayPath(layer.file) : null);
  return name === null || name === displayPath(file) ? where : `${name}, ${where}`;
}

/** A field in a file's text. */
interface Place {
  readonly file: string;
  readonly line: number;
  /** Where the key begins and ends in the text. */
  readonly start: number;
  readonly end: number;
}

/** The fields named like the last part of a key, in the files of a layer. */
function literalPlaces(key: string, file: string): Place[] {
  const name = key
    .split('.')
    .filter((part) => !/^\d+$/.test(part))
    .at(-1);
  if (name === undefined) return [];
  const places = [...importClosure([file])].flatMap(([path, text]) =>
    fieldsNamed(text, name).map(([start, end]): Place => {
      return { file: path, line: text.slice(0, start).split('\n').length, start, end };
    }),
  );
  return places.length > MOST_PLACES ? [] : places;
}

interface Question {
  readonly expression: string;
  readonly key: string;
}

/** The values of keys in expressions; 'unknown' if Jsonnet fails. One evaluation, unless some of them fail. */
async function lookUp(questions: readonly Question[], origin: Pick<Origin, 'file' | 'env'>): Promise<Found[]> {
  if (questions.length === 0) return [];
  const asked = questions.map(({ expression, key }) => {
    const path = key.split('.').map((part) => (/^\d+$/.test(part) ? part : JSON.stringify(part)));
    return `at([${expression}], [${path.join(', ')}])`;
  });
  const snippet = `local has(v, k) = if std.isNumber(k) then std.isArray(v) && k < std.length(v) else std.isObject(v) && std.objectHas(v, k);
local at(found, path) = if found == [] || path == [] then found else at(if has(found[0], path[0]) then [found[0][path[0]]] else [], path[1:]);
[${asked.join(',\n')}]`;
  try {
    const { value } = await evaluateSnippet({ file: origin.file, roots: [], snippet, environment: origin.env });
    return (value as unknown[][]).map((found) => (found.length === 0 ? 'nothing' : { value: found[0] }));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    if (questions.length === 1 || error instanceof LimitError) return questions.map(() => 'unknown');
    const half = Math.ceil(questions.length / 2);
    return [...(await lookUp(questions.slice(0, half), origin)), ...(await lookUp(questions.slice(half), origin))];
  }
}

function compose(layers: readonly Layer[], folder = ''): string {
  const importOf = (path: string): string => `(import ${JSON.stringify(`${folder}${resolve(path)}`)})`;
  return layers.map(({ expression }) => expression(importOf)).join(' + ');
}

/** The value of each key once a field is renamed, from copies of the files in a temporary folder. */
async function renamed(
  probes: readonly { readonly key: string; readonly place: Place }[],
  origin: Origin,
): Promise<Found[]> {
  const root = mkdtempSync(join(tmpdir(), 'editrl-origin-'));
  try {
    const sources = importClosure(origin.layers.map(({ file }) => file));
    const folders = new Map<string, string>();
    const folderOf = (place: Place): string => {
      const name = `${place.file}:${place.start}`;
      const known = folders.get(name);
      if (known !== undefined) return known;
      const folder = join(root, String(folders.size));
      folders.set(name, folder);
      for (const [path, text] of sources) {
        const copy = `${folder}${path}`;
        mkdirSync(dirname(copy), { recursive: true });
        const changed = `${text.slice(0, place.start)}'editrl probe'${text.slice(place.end)}`;
        writeFileSync(copy, path === place.file ? changed : text);
      }
      return folder;
    };
    const copies = probes.map(({ place }) => folderOf(place));
    const questions = probes.map(({ key }, i): Question => ({ expression: compose(origin.layers, copies[i]), key }));
    const found = await lookUp(questions, origin);
    // A path that a file gives for itself is the copy's.
    return found.map((one, index) => {
      if (typeof one === 'string') return one;
      const text = JSON.stringify(one.value).replaceAll(copies[index], '');
      return { value: JSON.parse(text) as unknown };
    });
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}
