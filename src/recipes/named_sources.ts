/** What metrics and records call held-out sets. */
import { basename, dirname, extname } from 'node:path';
import { ConfigError } from '../core/errors.js';

/** A dataset with a name that metrics can carry. */
export interface NamedSource<S> {
  readonly name: string;
  readonly source: S;
}

/**
 * Names held-out sets after the folders around them, `…/tiny/s/validation/list/tokenized_datalist.json` and `…/s/validation.jsonl` are called
 * `s`; those that would share a name take their own, so that `…/earl/a_val` and `…/earl/b_val` are called `a_val` and `b_val`; and so does one
 * around which its path names no folder. Raises ConfigError where names are still the same.
 */
export function nameSources<S>(paths: readonly string[], opened: readonly S[]): NamedSource<S>[] {
  const usual = paths.map(datasetOf).map((path) => {
    const folder = basename(dirname(path));
    return ['', '.', '..'].includes(folder) ? basename(path) : folder;
  });
  const named = opened.map((source, i) => {
    const shared = usual.some((name, j) => j !== i && name === usual[i]);
    return { name: shared ? basename(datasetOf(paths[i])) : usual[i], source };
  });
  for (const { name } of named) {
    const same = paths.filter((_, i) => named[i].name === name);
    if (same.length < 2) continue;
    throw new ConfigError(`found ${same.length} held-out sets that are called '${name}': ${same.join(', ')}`, {
      where: 'data.validation',
      next: 'Name each dataset once, and keep different ones in folders of different names.',
    });
  }
  return named;
}

/** What a path stands for: the folder around a datalist, a file of rows without its ending, or the folder itself. */
function datasetOf(path: string): string {
  const ending = extname(path);
  if (ending === '.json') return dirname(dirname(path));
  return ['.jsonl', '.parquet', '.txt'].includes(ending) ? path.slice(0, -ending.length) : path;
}
