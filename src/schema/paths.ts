/** Reads and writes JSON values by dotted path; a number addresses a list's element. Only a value's own properties count. */
import { isObject } from './walk.js';

/** The value at a path, dotted or in parts; undefined if there is none. */
export function getPath(root: unknown, path: string | readonly (string | number)[]): unknown {
  let here = root;
  for (const key of typeof path === 'string' ? path.split('.') : path) {
    if (!isObject(here) && !Array.isArray(here)) return undefined;
    here = Object.hasOwn(here, key) ? (here as Record<string, unknown>)[key] : undefined;
  }
  return here;
}

export function hasPath(root: unknown, path: string): boolean {
  return getPath(root, path) !== undefined;
}

/**
 * Sets a value, creating the objects on the way (also in place of nulls). If something on the way is neither an object nor an existing list element,
 * returns its path, else null.
 */
export function setPath(root: Record<string, unknown>, path: string, value: unknown): string | null {
  const keys = path.split('.');
  let here: unknown = root;
  for (const [depth, key] of keys.entries()) {
    const isLast = depth === keys.length - 1;
    if (Array.isArray(here)) {
      if (!/^\d+$/.test(key) || Number(key) >= here.length) return keys.slice(0, depth).join('.');
    } else if (!isObject(here)) {
      return keys.slice(0, depth).join('.');
    }
    const container = here as Record<string, unknown>;
    if (isLast) {
      container[key] = value;
    } else {
      if (!Object.hasOwn(container, key) || container[key] === null) container[key] = {};
      here = container[key];
    }
  }
  return null;
}

/** The leaves of a value, by dotted path and in its order; a list, and an object without keys, counts as one leaf. */
export function leavesOf(value: Readonly<Record<string, unknown>>, above = ''): [path: string, value: unknown][] {
  return Object.entries(value).flatMap(([key, inner]): [string, unknown][] => {
    const path = above === '' ? key : `${above}.${key}`;
    return isObject(inner) && Object.keys(inner).length > 0 ? leavesOf(inner, path) : [[path, inner]];
  });
}
