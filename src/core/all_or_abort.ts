/** Work that is started together and cancelled together. */
import { allowManyListeners } from './listeners.js';

/**
 * Starts all and returns their results in order. When one rejects, the others are called off through the signal that they were given, and
 * its error is raised after they have ended, whatever these raise: nothing goes on in the background. The caller's signal calls all of them off.
 */
export async function allOrAbort<T>(
  starts: readonly ((signal: AbortSignal) => Promise<T>)[],
  signal?: AbortSignal,
): Promise<T[]> {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  if (signal !== undefined) {
    // All work under way listens to one signal, which is not a leak.
    allowManyListeners(signal);
    signal.addEventListener('abort', abort);
  }
  if (signal?.aborted === true) abort();
  let first: { readonly error: unknown } | null = null;
  try {
    const started = starts.map(async (start) => {
      try {
        return await start(controller.signal);
      } catch (error) {
        first ??= { error };
        abort();
        throw error;
      }
    });
    await Promise.allSettled(started);
    if (first !== null) throw (first as { readonly error: unknown }).error;
    return await Promise.all(started);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
