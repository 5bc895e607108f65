/** Helpers for checks before a run. */
import { EditrlError } from '../../core/errors.js';

/** A problem that prevents a run. */
export interface Obstacle {
  readonly run: string;
  readonly error: EditrlError;
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
