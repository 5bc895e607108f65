/** `--set a.b=value`: changes to the value of a config. */
import { UsageError } from '../core/errors.js';
import type { Problem } from './schema/rules.js';
import { getPath, setPath } from '../core/schema/walk.js';

/** One parsed `--set`. */
export interface Change {
  /** Dotted path. */
  readonly path: string;
  readonly value: unknown;
}

const keyPath = /^[\w-]+(\.[\w-]+)*$/;

/**
 * Splits `a.b=value`. A value that is not JSON is a string. Raises UsageError for a missing `=`, an invalid key, and a list or object that is not valid
 * JSON.
 */
export function parseSet(text: string): Change {
  const at = text.indexOf('=');
  const path = text.slice(0, Math.max(at, 0));
  if (at > 0 && !keyPath.test(path)) {
    throw new UsageError(
      `--set ${text}: '${path}' is not a key; allowed: names with dots between them, such as reward.mode`,
    );
  }
  if (at <= 0) {
    throw new UsageError(`--set ${text}: found no '='; allowed: KEY=VALUE`, {
      next: 'Write it as --set optimizer.learning_rate=1e-5.',
    });
  }
  if (path.split('.').includes('__proto__')) throw new UsageError(`--set ${text}: '__proto__' cannot be a key`);
  const content = text.slice(at + 1);
  try {
    return { path, value: JSON.parse(content) as unknown };
  } catch {
    if (!/^\s*[[{]/.test(content)) return { path, value: content };
    throw new UsageError(`--set ${text}: found a list or an object that is not valid JSON`, {
      next: `Write JSON, with quotes around keys: --set '${path}={"key": "value"}'; put Jsonnet into a file (--with).`,
    });
  }
}

/** The `--set`s that also apply to the runs that a run starts from: the folder of runs. */
export function reachingParents(sets: readonly string[]): string[] {
  return sets.filter((text) => parseSet(text).path === 'base_exp_dir');
}

/** Applies changes in order to `raw`, which is modified. Returns the problems of changes that cannot be applied. */
export function applyChanges(raw: Record<string, unknown>, changes: readonly Change[]): Problem[] {
  return changes.flatMap(({ path, value }) => {
    const blockedAt = setPath(raw, path, value);
    if (blockedAt === null) return [];
    const blocking = JSON.stringify(getPath(raw, blockedAt));
    return [{ key: path, message: `cannot be set: ${blockedAt} is ${blocking}; set ${blockedAt} as a whole` }];
  });
}
