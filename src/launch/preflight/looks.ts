/** What those share who look before a run at what is elsewhere: each thing once, and what is wrong with it as a value. */
import { EditrlError } from '../../core/errors.js';

/** What is in the way of one run. */
export interface Obstacle {
  readonly run: string;
  readonly error: EditrlError;
}

/** What a look fails with; null where it does not. Raises what is no EditrlError. */
export async function failureOf(look: () => Promise<unknown>): Promise<EditrlError | null> {
  try {
    await look();
    return null;
  } catch (error) {
    if (error instanceof EditrlError) return error;
    throw error;
  }
}

/** What was made for a key, which is made once. */
export function once<T>(known: Map<string, Promise<T>>, key: string, make: () => Promise<T>): Promise<T> {
  const making = known.get(key) ?? make();
  known.set(key, making);
  return making;
}

/** What is made when it is first asked for, and once. */
export function lazy<T>(make: () => T): () => T {
  let made: { readonly value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}
