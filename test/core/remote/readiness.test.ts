import { expect, it } from 'vitest';
import { untilReady, type UntilReadyOptions } from '../../../src/core/remote/remote.js';
import { EndpointError } from '../../../src/core/errors.js';
import { ManualClock, settle } from '../manual_clock.js';

type Seen = 'ready' | 'not yet' | 'final';

/** What came of looks that found this in turn, the last of them for ever, and when each was. */
async function looked(seen: readonly Seen[], options: Partial<UntilReadyOptions> = {}) {
  const clock = new ManualClock();
  const times: number[] = [];
  let settled = false;
  const look = async () => {
    const found = seen[Math.min(times.length, seen.length - 1)];
    times.push(clock.now());
    return found === 'ready' ? { ready: found } : { error: new EndpointError(found), final: found === 'final' };
  };
  const usual = { clock, maxWaitMs: 60_000, pauseMs: 5000, finalChecks: { count: 3, pauseMs: 1000 } };
  const asked = untilReady(look, { ...usual, ...options })
    .catch((error: unknown) => (error as Error).message)
    .finally(() => (settled = true));
  for (await settle(); !settled; await settle()) await clock.pass((clock.next ?? 0) - clock.now());
  return { result: await asked, times };
}

it('checks until the servers are ready, or the time is over', async () => {
  const late: Seen[] = ['not yet', 'not yet', 'not yet', 'not yet', 'ready'];
  expect(await looked(late)).toEqual({ result: 'ready', times: [0, 5000, 10_000, 15_000, 20_000] });
  expect(await looked(['not yet'], { maxWaitMs: 7000 })).toEqual({ result: 'not yet', times: [0, 5000, 7000] });
  expect(await looked(['not yet'], { maxWaitMs: 0 })).toEqual({ result: 'not yet', times: [0] });
});

it('accepts a final problem after a number of such checks in a row', async () => {
  expect(await looked(['final'])).toEqual({ result: 'final', times: [0, 1000, 2000] });
  const doubtful: Seen[] = ['final', 'final', 'not yet', 'final', 'final', 'ready'];
  expect((await looked(doubtful)).result).toBe('ready');
});

it('ends with the signal', async () => {
  const stop = new AbortController();
  const found = await looked(['not yet'], { signal: stop.signal, onWaiting: () => stop.abort() });
  expect(found).toEqual({ result: 'not yet', times: [0, 0] });
});
