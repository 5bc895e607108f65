/** Resolves the modules that the terms of a reward name. */
import { statSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import type { Problem } from '../schema/rules.js';
import { getPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';
import { displayPath } from './jsonnet.js';
import { TERM_LISTS } from './models.js';

/**
 * Makes every term's `module` an absolute path, so that workers and later resumes find it from any folder. A relative path is resolved beside the
 * config (the first of `folders`), or else beside the only other file involved that has it: Jsonnet does not tell which file gave it. `value` is not
 * changed.
 */
export function placeModules(
  value: Record<string, unknown>,
  folders: readonly string[],
): { readonly value: Record<string, unknown>; readonly problems: readonly Problem[] } {
  const problems: Problem[] = [];
  const placed = (term: unknown, key: string): unknown => {
    if (!isObject(term) || typeof term['module'] !== 'string' || term['module'] === '') return term;
    const found = find(term['module'], folders);
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

function find(module: string, folders: readonly string[]): string[] {
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
  if (isAbsolute(module)) return `found '${module}', where there is no file; ${form}`;
  const looked = [...new Set(folders)].map((folder) => displayPath(resolve(folder))).join(', ');
  return `found '${module}', but there is no such file (looked in ${looked}); ${form}`;
}
