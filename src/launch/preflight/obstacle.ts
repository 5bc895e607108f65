/** Helpers for checks before a run. */
import { ConfigError, EditrlError } from '../../core/errors.js';

/** A problem that prevents a run. */
export interface Obstacle {
  readonly run: string;
  readonly error: EditrlError;
}

/** The exit code of a command that these problems block: 2 if a config must change, 1 if only this machine blocks a run, 0 without problems. */
export function exitCodeOf(obstacles: readonly Obstacle[]): 0 | 1 | 2 {
  if (obstacles.length === 0) return 0;
  return obstacles.some(({ error }) => error instanceof ConfigError) ? 2 : 1;
}

/** The EditrlError that a check raises. Null if it passes. Other errors are raised. */
export async function failureOf(check: () => Promise<unknown>): Promise<EditrlError | null> {
  try {
    await check();
    return null;
  } catch (error) {
    if (error instanceof EditrlError) return error;
    throw error;
  }
}

/** The value for a key, computed once. */
export function computeOnce<T>(known: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  const making = known.get(key) ?? make();
  known.set(key, making);
  return making;
}

/** A value that is computed once, at its first use. */
export function lazy<T>(make: () => T): () => T {
  let made: { readonly value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}
