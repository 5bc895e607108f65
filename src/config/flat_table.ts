/** What the flat dialects share whose keys are a table, and whose files may hold canonical keys beside them. */
import { existsSync } from 'node:fs';
import { nearest } from '../core/nearest.js';
import type { Problem } from '../recipes/rules.js';
import { hasPath } from '../schema/paths.js';
import { isObject } from '../schema/walk.js';

/** A key, and where its value goes or what follows from it; null where it has no meaning here. */
export interface TableKey {
  readonly to: string | null;
  /** Read with others: what comes of it is no plain copy. */
  readonly joint?: true;
}

type Keys = Readonly<Record<string, TableKey>>;
type Raw = Readonly<Record<string, unknown>>;

/** A value that stands in a file in both forms. */
export function bothForms(raw: Raw, keys: Keys): Problem[] {
  return Object.entries(keys).flatMap(([key, { to, joint }]) =>
    key in raw && to !== null && joint !== true && hasPath(raw, to)
      ? [{ key, message: `also given as ${to}; keep one of the two` }]
      : [],
  );
}

/** Keys of neither form. */
export function unknownKeys(raw: Raw, keys: Keys, sections: readonly string[]): Problem[] {
  const known = [...Object.keys(keys), ...sections];
  return Object.keys(raw).flatMap((key) => {
    if (known.includes(key)) return [];
    const close = nearest(key, known);
    const hint = close === null ? `allowed: ${known.sort().join(', ')}` : `did you mean ${close}?`;
    return [{ key, message: `unknown key; ${hint}` }];
  });
}

/** A model as dialects name it: `owner/name` is one of the Hub where no such folder is there. */
export function namedModel(value: unknown, revision: unknown = null): unknown {
  if (typeof value !== 'string' || isObject(value)) return value;
  const isHub = /^[\w.-]+\/[\w.-]+$/.test(value) && !value.startsWith('.') && !existsSync(value);
  if (!isHub) return value;
  return revision === null ? { hub: value } : { hub: value, revision };
}
