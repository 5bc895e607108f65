/** The configs of the runs that a run starts from. */
import { existsSync, statSync } from 'node:fs';
import { dirname, relative, resolve, isAbsolute } from 'node:path';
import type { Problem } from './schema/rules.js';
import { getPath, setPath, isObject } from '../core/schema/walk.js';
import { displayPath, evaluateSnippet, importOf, type Environment, type Evaluation } from './jsonnet.js';
import { readJsonnet } from './jsonnet_text.js';
import { modelKeys, TERM_LISTS } from './models.js';
import { recipeNamed } from './recipes.js';

/** A reference to the config of another run, in settings that are not validated yet. */
export interface FoundReference {
  readonly key: string;
  readonly run: string;
  /** Absolute path of the config. Null if there is no such file. */
  readonly config: string | null;
}

/**
 * Makes the `config` of every `{run, config}` in canonical settings relative to `file`, and returns the references. A path is relative to the file that
 * contains it as a string: one of `roots`, else one that they import. A path that no file contains is relative to `file`, else to the only other file
 * whose folder has it. `value` is modified. Returns a problem for an ambiguous path.
 */
export function placeReferences(
  value: Record<string, unknown>,
  file: string,
  roots: readonly string[],
  sources: ReadonlyMap<string, string>,
): { readonly references: readonly FoundReference[]; readonly problems: readonly Problem[] } {
  const references: FoundReference[] = [];
  const problems: Problem[] = [];
  for (const key of modelKeys(value)) {
    const reference = getPath(value, key);
    if (!isObject(reference)) continue;
    const { run, config } = reference;
    if (typeof run !== 'string' || typeof config !== 'string') continue;
    const found = knownFiles(config, file, roots, sources);
    if (found.length > 1) {
      const message = `found '${config}', which may be any of ${found.map(displayPath).join(', ')}; allowed: a path to one of them`;
      problems.push({ key: `${key}.config`, message });
      continue;
    }
    const target = found[0] ?? null;
    if (target !== null && target !== resolve(dirname(file), config)) {
      setPath(value, key, { ...reference, config: relative(dirname(resolve(file)), target) });
    }
    references.push({ key, run, config: target });
  }
  return { references, problems };
}

/** Cached by the texts, which the cells of a matrix share. */
const known = new WeakMap<ReadonlyMap<string, string>, Map<string, readonly string[]>>();

function knownFiles(
  config: string,
  file: string,
  roots: readonly string[],
  sources: ReadonlyMap<string, string>,
): readonly string[] {
  const ofTexts = known.get(sources) ?? new Map<string, readonly string[]>();
  known.set(sources, ofTexts);
  const cacheKey = JSON.stringify([config, file, roots]);
  const found = ofTexts.get(cacheKey) ?? find(config, file, roots, sources);
  ofTexts.set(cacheKey, found);
  return found;
}

function find(
  config: string,
  file: string,
  roots: readonly string[],
  sources: ReadonlyMap<string, string>,
): readonly string[] {
  const own = roots.map((root) => resolve(root));
  const writing = [...sources].filter(
    ([, text]) => text.includes(config) && readJsonnet(text).strings.includes(config),
  );
  const files = writing.map(([path]) => path);
  const beside = [resolve(file)];
  const groups = [
    files.filter((path) => own.includes(path)),
    files.filter((path) => !own.includes(path)),
    beside,
    [...sources.keys()],
  ];
  for (const group of groups) {
    const targets = [...new Set(group.map((path) => resolve(dirname(path), config)))].filter(existsSync);
    if (targets.length > 0) return targets;
  }
  return [];
}

/** The field of an overlay that should not apply to parents. */
const REACHES = 'reaches_parents';

/** The Jsonnet expression of an overlay, for a run itself or for a parent. */
export function overlayOf(path: string, parent: boolean): string {
  const refused = `${path}: ${REACHES}: found `;
  const noObject = `${path}: found an overlay that evaluates to `;
  return `(local overlay = ${importOf(path)};
  local reaches = if std.isObject(overlay) && std.objectHasAll(overlay, '${REACHES}') then overlay.${REACHES} else true;
  if !std.isObject(overlay) then error ${JSON.stringify(noObject)} + std.type(overlay) + '; allowed: an object, which is merged over the config'
  else if !std.isBoolean(reaches) then error ${JSON.stringify(refused)} + std.manifestJsonMinified(reaches) + '; allowed: true or false'
  else ${parent ? 'if reaches then overlay else {}' : 'overlay'})`;
}

/** Merged over the last overlay. The field is not a setting. */
export const withoutReach = `{ ${REACHES}:: null }`;

type Path = readonly (string | number)[];

/** The keys that the recipe of a config does not have. */
function foreignKeys(value: Readonly<Record<string, unknown>>): Path[] {
  const parsed = recipeNamed(value['task'])?.schema.safeParse(value);
  const issues = parsed === undefined || parsed.success ? [] : parsed.error.issues;
  return issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...(issue.path as Path), key]) : [],
  );
}

/** A run that others start from. */
export interface ParentOrder {
  readonly name: string;
  readonly file: string;
  /** Values of an experiment's axes that reach it. */
  readonly mixins: readonly (readonly [axis: string, value: string])[];
}

/**
 * Evaluates runs that others start from: their own configs, with the overlays and axes that reach them. Drops keys of overlays and axes that the recipe
 * of a parent does not have. `file`: the experiment or config that the runs belong to.
 */
export async function evaluateParents(
  { file, overlays, environment }: { file: string; overlays: readonly string[]; environment: Environment },
  parents: readonly ParentOrder[],
): Promise<Omit<Evaluation, 'value'> & { readonly values: readonly unknown[] }> {
  const mixed = parents.map(({ name, file: config, mixins }) => {
    const axes = mixins.map(([axis, value]) => `e.axes[${JSON.stringify(axis)}][${JSON.stringify(value)}]`);
    return [importOf(config), 'over', ...axes, `{ run_name: ${JSON.stringify(name)} }`].join(' + ');
  });
  const snippet = `local e = ${importOf(file)};
local over = ${[...overlays.map((path) => overlayOf(path, true)), withoutReach].join(' + ')};
[
${mixed.join(',\n')}
]`;
  const roots = [...new Set(parents.map((parent) => parent.file)), ...overlays];
  const { value, ...evaluation } = await evaluateSnippet({ file, roots, snippet, environment });
  const values = value as readonly unknown[];
  const foreign = parents.map((_, index) => isObject(values[index]) && foreignKeys(values[index]).length > 0);
  const files = [...new Set(parents.filter((_, index) => foreign[index]).map((parent) => parent.file))];
  if (files.length > 0) {
    const own = await evaluateSnippet({
      file,
      roots: files,
      snippet: `[${files.map(importOf).join(', ')}]`,
      environment,
    });
    values.forEach((settings, index) => {
      if (!foreign[index]) return;
      dropForeignKeys(
        settings as Record<string, unknown>,
        (own.value as unknown[])[files.indexOf(parents[index].file)],
      );
    });
  }
  return { values, ...evaluation };
}

/** Removes keys that a recipe does not have. Keys in `own`, the value of the config's file alone, stay and are reported. */
function dropForeignKeys(value: Record<string, unknown>, own: unknown): void {
  for (const path of foreignKeys(value)) {
    if (getPath(own, path) !== undefined) continue;
    const holder = getPath(value, path.slice(0, -1));
    if (isObject(holder)) Reflect.deleteProperty(holder, path[path.length - 1]);
  }
}

/**
 * Makes the `module` of every term an absolute path, so that workers and later resumes find it. A relative path is resolved in the folder of the config
 * (the first of `folders`), else in the only other folder that has it, because Jsonnet does not report the file of a value. `value` is not modified.
 */
export function placeModules(
  value: Record<string, unknown>,
  folders: readonly string[],
): { readonly value: Record<string, unknown>; readonly problems: readonly Problem[] } {
  const problems: Problem[] = [];
  const placed = (term: unknown, key: string): unknown => {
    if (!isObject(term) || typeof term['module'] !== 'string' || term['module'] === '') return term;
    const found = findModule(term['module'], folders);
    if (found.length === 1) return { ...term, module: found[0] };
    problems.push({ key: `${key}.module`, message: misplaced(term['module'], found, folders) });
    return term;
  };
  const changed = { ...value };
  for (const list of TERM_LISTS) {
    const terms = getPath(value, list);
    if (!Array.isArray(terms)) continue;
    const [section, field] = list.split('.');
    const moved = terms.map((term, index) => placed(term, `${list}.${index}`));
    changed[section] = { ...(value[section] as object), [field]: moved };
  }
  return { value: changed, problems };
}

function findModule(module: string, folders: readonly string[]): string[] {
  if (isAbsolute(module)) return isFile(module) ? [module] : [];
  const places = [...new Set(folders.map((folder) => resolve(folder, module)))];
  return places.length > 0 && isFile(places[0]) ? [places[0]] : places.filter(isFile);
}

function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

function misplaced(module: string, found: readonly string[], folders: readonly string[]): string {
  const form = 'allowed: an ES module (.js or .mjs), relative to the config that names it';
  if (found.length > 1) return `found '${module}', which may be any of ${found.map(displayPath).join(', ')}; ${form}`;
  if (isAbsolute(module)) return `found '${module}', but there is no such file; ${form}`;
  const looked = [...new Set(folders)].map((folder) => displayPath(resolve(folder))).join(', ');
  return `found '${module}', but there is no such file (looked in ${looked}); ${form}`;
}
