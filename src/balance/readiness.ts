/** Waiting until servers are ready to be asked. */
import { sleep, type Clock } from '../core/clock.js';
import type { EndpointError } from '../core/errors.js';

/** The result of checking servers. `final`: waiting will not make them ready. */
export type ReadinessResult<R> = { readonly ready: R } | { readonly error: EndpointError; readonly final: boolean };

export interface UntilReadyOptions {
  readonly clock: Clock;
  /** 0 looks once. */
  readonly maxWaitMs: number;
  readonly signal?: AbortSignal | undefined;
  /** The pause after a look. */
  readonly pauseMs: number;
  /** The number of checks in a row that have to be final before they are believed, and the time between them; one check by default. */
  readonly finalLooks?: { readonly count: number; readonly pauseMs: number };
  /** Called after every look that found them not ready, with what was found. */
  readonly onWaiting?: ((found: string, waitedS: number) => void) | undefined;
}

/** Looks until the servers are ready. Raises the error of the last look where they are not in time, will not be, or the signal aborts. */
export async function untilReady<R>(
  look: () => Promise<ReadinessResult<R>>,
  { clock, maxWaitMs, signal, pauseMs, finalLooks = { count: 1, pauseMs }, onWaiting }: UntilReadyOptions,
): Promise<R> {
  const started = clock.now();
  for (let finals = 0; ;) {
    const found = await look();
    if ('ready' in found) return found.ready;
    finals = found.final ? finals + 1 : 0;
    const waitedMs = clock.now() - started;
    if (signal?.aborted === true || finals === finalLooks.count || waitedMs >= maxWaitMs) throw found.error;
    onWaiting?.(found.error.message, Math.round(waitedMs / 1000));
    await sleep(clock, Math.min(found.final ? finalLooks.pauseMs : pauseMs, maxWaitMs - waitedMs), signal);
  }
}
