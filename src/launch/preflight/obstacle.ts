/** Helpers for checks before a run: each thing is checked once, and what is wrong with it becomes a value. */
import { EditrlError } from '../../core/errors.js';

/** What prevents one run. */
export interface Obstacle {
  readonly run: string;
  readonly error: EditrlError;
}

/** The error that a check raises; null if it passes. Raises anything that is not an EditrlError. */
export async function failureOf(look: () => Promise<unknown>): Promise<EditrlError | null> {
  try {
    await look();
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

/** A value computed at its first use, and only once. */
export function lazy<T>(make: () => T): () => T {
  let made: { readonly value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}
