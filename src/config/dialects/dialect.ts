/** What the flat dialects share: their keys form a table, and their files may hold canonical keys beside them. */
import { existsSync } from 'node:fs';
import { nearest } from '../../core/nearest.js';
import type { Problem } from '../../recipes/rules.js';
import { hasPath } from '../../schema/paths.js';
import { isObject } from '../../schema/walk.js';
import { applyChanges, type Change } from '../sets.js';
import type { FlatWords } from './words.js';

/** A key, and where its value goes or what it affects; null if it has no meaning here. */
export interface TableKey {
  readonly to: string | null;
  /** The value is not simply copied: the dialect's own code sets it. */
  readonly joint?: true;
  /** Other keys affect the value at `to` too; a canonical value given beside this key wins. */
  readonly shared?: true;
}

type Keys = Readonly<Record<string, TableKey>>;
type Raw = Readonly<Record<string, unknown>>;

/** How the flat config files of another program become the canonical form. */
export interface Dialect {
  /** Whether an evaluated file is one of them. */
  readonly recognises: (raw: Readonly<Record<string, unknown>>) => boolean;
  /** `raw` is changed. */
  readonly translate: (raw: Record<string, unknown>, source: DialectSource) => Translation;
}

/** What a dialect knows besides the file's content. */
export interface DialectSource {
  readonly file: string;
  /** The file's name without its extension: the run's name if the file gives none. */
  readonly stem: string;
  /** The requested name (APP__RUN_NAME): that of a parent, if the file is read as another run's parent. */
  readonly runName: string;
  /** The folder that datasets' paths are built from (APP__DATA_DIR). */
  readonly dataDir: string;
  /** Whether anything was merged over the file: only then may a value be given in both forms. */
  readonly overlaid: boolean;
  /** Changes in either form, which come last. */
  readonly changes: readonly Change[];
}

/** A file translated to the canonical form. */
export interface Translation {
  readonly value: Record<string, unknown>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  /** Rewords problems with the value in the file's own keys. */
  readonly words: FlatWords;
}

/**
 * Separates the two forms in a file: its flat keys stay in `raw`, which is changed, and the canonical ones are `value`; `--set` changes either. A key
 * that both forms have is canonical.
 */
export function separateForms(
  raw: Record<string, unknown>,
  keys: Keys,
  sections: readonly string[],
  { overlaid, changes }: DialectSource,
): { readonly value: Record<string, unknown>; readonly problems: Problem[] } {
  const isFlat = (key: string): boolean => Object.hasOwn(keys, key) && !sections.includes(key);
  const isOwn = ({ path }: Change): boolean => isFlat(path.split('.')[0]);
  const problems = overlaid ? [] : bothForms(raw, keys);
  problems.push(...applyChanges(raw, changes.filter(isOwn)), ...unknownKeys(raw, keys, sections));
  const canonical = Object.entries(raw).filter(([key]) => !isFlat(key) && sections.includes(key));
  const value = structuredClone(Object.fromEntries(canonical));
  problems.push(
    ...applyChanges(
      value,
      changes.filter((change) => !isOwn(change)),
    ),
  );
  return { value, problems };
}

/** Reports values that a file gives in both forms. */
function bothForms(raw: Raw, keys: Keys): Problem[] {
  return Object.entries(keys).flatMap(([key, { to, shared }]) =>
    key in raw && to !== null && to !== key && shared !== true && hasPath(raw, to)
      ? [{ key, message: `also given as ${to}; keep one of the two` }]
      : [],
  );
}

/** Reports keys of neither form. */
function unknownKeys(raw: Raw, keys: Keys, sections: readonly string[]): Problem[] {
  const known = [...Object.keys(keys), ...sections];
  return Object.keys(raw).flatMap((key) => {
    if (known.includes(key)) return [];
    const close = nearest(key, known);
    const hint = close === null ? `allowed: ${known.sort().join(', ')}` : `did you mean ${close}?`;
    return [{ key, message: `unknown key; ${hint}` }];
  });
}

/** A model as dialects name it: `owner/name` is from the Hub if no such folder exists. */
export function namedModel(value: unknown, revision: unknown = null): unknown {
  if (typeof value !== 'string' || isObject(value)) return value;
  const isHub = /^[\w.-]+\/[\w.-]+$/.test(value) && !value.startsWith('.') && !existsSync(value);
  if (!isHub) return value;
  return revision === null ? { hub: value } : { hub: value, revision };
}
