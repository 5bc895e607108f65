import { expect, it } from 'vitest';
import { Breaker } from '../../src/balance/breaker.js';
import { ManualClock } from '../core/manual_clock.js';

/** A breaker of three failures and a pause of a second, and the clock that it goes by. */
function made(): { breaker: Breaker; clock: ManualClock } {
  const clock = new ManualClock();
  return { breaker: new Breaker(clock, 3, 1_000), clock };
}

function fail(breaker: Breaker, times: number): void {
  for (let i = 0; i < times; i++) breaker.failed();
}

it('blocks after so many failures in a row, and says how many there were', () => {
  const { breaker } = made();
  expect(breaker.blocking()).toBeNull();
  fail(breaker, 2);
  expect(breaker.blocking()).toBeNull();
  fail(breaker, 1);
  expect(breaker.blocking()).toBe(3);
  // Those that were under way when it closed.
  fail(breaker, 2);
  expect(breaker.blocking()).toBe(5);
});

it('counts failures in a row: a success between them begins anew', () => {
  const { breaker } = made();
  fail(breaker, 2);
  breaker.succeeded();
  fail(breaker, 2);
  expect(breaker.blocking()).toBeNull();
  fail(breaker, 1);
  expect(breaker.blocking()).toBe(3);
});

it('lets one caller through when the pause is over, and the next one only after another pause', async () => {
  const { breaker, clock } = made();
  await clock.pass(5_000);
  fail(breaker, 3);
  await clock.pass(999);
  expect(breaker.blocking()).toBe(3);
  await clock.pass(1);
  expect(breaker.blocking()).toBeNull();
  expect(breaker.blocking()).toBe(3);
  // The one that was let through fails, too.
  breaker.failed();
  await clock.pass(999);
  expect(breaker.blocking()).toBe(4);
  await clock.pass(1);
  expect(breaker.blocking()).toBeNull();
  expect(breaker.blocking()).toBe(4);
});

it('is not closed for longer by failures that come while it is', async () => {
  const { breaker, clock } = made();
  fail(breaker, 3);
  await clock.pass(600);
  fail(breaker, 1);
  await clock.pass(400);
  expect(breaker.blocking()).toBeNull();
});

it('lets everyone through once one that was let through has succeeded', async () => {
  const { breaker, clock } = made();
  fail(breaker, 3);
  await clock.pass(1_000);
  expect(breaker.blocking()).toBeNull();
  breaker.succeeded();
  expect([breaker.blocking(), breaker.blocking()]).toEqual([null, null]);
});
