/** Work that is started at once and given up at once. */

/**
 * Starts all and returns their results in order. When one rejects, the others are called off through the signal that they were given, and
 * its error is raised after they have ended: nothing goes on in the background. The caller's signal calls all of them off.
 */
export async function together<T>(
  starts: readonly ((signal: AbortSignal) => Promise<T>)[],
  signal?: AbortSignal,
): Promise<T[]> {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  signal?.addEventListener('abort', abort);
  if (signal?.aborted === true) abort();
  let failed: { readonly error: unknown } | null = null;
  try {
    const results = await Promise.all(
      starts.map(async (start): Promise<T | null> => {
        try {
          return await start(controller.signal);
        } catch (error) {
          failed ??= { error };
          abort();
          return null;
        }
      }),
    );
    if (failed !== null) throw (failed as { readonly error: unknown }).error;
    return results as T[];
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
