/** Reading and writing JSON values by dotted path; a number addresses a list's element. Only what a value itself holds counts. */
import { isObject } from './walk.js';

/** What stands at a path, dotted or in parts; undefined where nothing does. */
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
 * Sets a value, making the objects on the way (in place of nulls too).
 * Returns the path of what stands in the way when that is neither an object nor an existing list element, else null.
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

/** What no object holds any more, by dotted path and in its order; a list, and an object without keys, is one value. */
export function leavesOf(value: Readonly<Record<string, unknown>>, above = ''): [path: string, value: unknown][] {
  return Object.entries(value).flatMap(([key, inner]): [string, unknown][] => {
    const path = above === '' ? key : `${above}.${key}`;
    return isObject(inner) && Object.keys(inner).length > 0 ? leavesOf(inner, path) : [[path, inner]];
  });
}
