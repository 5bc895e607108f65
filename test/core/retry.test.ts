import { expect, it } from 'vitest';
import { backoffMs, FULL_JITTER, TransientError, retry, type RetryOptions } from '../../src/core/retry.js';
import { ManualClock, settle } from './manual_clock.js';

/** Work that fails in these ways in turn and then succeeds; gives what became of it, and when each attempt began. */
async function tried(failures: readonly (Error | number)[], options: Partial<RetryOptions> = {}) {
  const clock = new ManualClock();
  const began: number[] = [];
  const lasts: boolean[] = [];
  let settled = false;
  const work = async (isLast: boolean): Promise<string> => {
    const failure = failures.at(began.length);
    began.push(clock.now());
    lasts.push(isLast);
    if (failure === undefined) return 'done';
    throw typeof failure === 'number' ? new TransientError('busy', failure) : failure;
  };
  const policy = { retries: 3, backoffBaseMs: 100, backoffCapMs: 300 };
  const result = retry(work, { policy, signal: new AbortController().signal, clock, ...options })
    .catch((error: unknown) => error)
    .finally(() => (settled = true));
  for (await settle(); !settled; await settle()) await clock.pass((clock.next ?? 0) - clock.now());
  return { result: await result, began, lasts };
}

const broke = new TransientError('the connection broke');

it('waits twice as long after each failure, up to a limit, and gives up after so many', async () => {
  const found = await tried([broke, broke, broke, broke]);
  expect(found).toEqual({ result: broke, began: [0, 100, 300, 600], lasts: [false, false, false, true] });
  expect((await tried([broke, broke])).result).toBe('done');
});

it('raises at once what will not pass', async () => {
  const refused = new Error('refused');
  expect(await tried([refused])).toMatchObject({ result: refused, began: [0] });
  const transientErrorOf = (cause: unknown): TransientError => new TransientError('it may', null, cause);
  expect((await tried([refused], { transientErrorOf })).result).toBe('done');
});

it('waits as long as the server asks, at least for its own pause, and gives up where that is too long', async () => {
  expect((await tried([1000, 0])).began).toEqual([0, 1000, 1200]);
  expect((await tried([300_000])).began).toEqual([0, 300_000]);
  for (const waitMs of [300_001, 1e12]) {
    expect(await tried([waitMs])).toMatchObject({ result: { waitMs }, began: [0] });
  }
});

it('counts again when the work has come further', async () => {
  const reached = [0, 0, 0, 1, 1, 1];
  const found = await tried([broke, broke, broke, broke, broke], { progress: () => reached.shift() ?? 1 });
  expect(found).toMatchObject({ result: 'done', began: [0, 100, 300, 400, 600, 900] });
});

it('says each failure that it retries, and ends a pause with the signal', async () => {
  const said: [string, number][] = [];
  const stop = new AbortController();
  const found = await tried([broke, broke, new Error('called off')], {
    signal: stop.signal,
    onRetry: ({ found }, failures) => {
      said.push([found, failures]);
      if (failures === 2) stop.abort();
    },
  });
  expect(said).toEqual([
    ['the connection broke', 1],
    ['the connection broke', 2],
  ]);
  expect(found).toMatchObject({ result: { message: 'called off' }, began: [0, 100, 100] });
});

it('spreads pauses over the range of the jitter', () => {
  const policy = { backoffBaseMs: 100, backoffCapMs: 1000 };
  expect(backoffMs(policy, 2, FULL_JITTER, () => 0.25)).toBe(100);
  expect(backoffMs(policy, 2, [1, 1.25], () => 0.5)).toBe(450);
  expect(backoffMs(policy, 5000, [1, 1], () => 0)).toBe(1000);
});
