/** Signals that much work listens to. */
import { setMaxListeners } from 'node:events';

/**
 * Lets any number listen to a signal without Node's warning of a leak: all requests under way share one limit. The limit is Infinity and not 0, which
 * means the same to listeners, because Node 20's `getMaxListeners`, which its `fetch` calls, raises an error for a signal whose limit is 0.
 */
export function allowManyListeners(signal: AbortSignal): void {
  setMaxListeners(Infinity, signal);
}
