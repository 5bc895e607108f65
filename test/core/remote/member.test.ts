import { expect, it, describe } from 'vitest';
import { Breaker, AdaptiveLimit } from '../../../src/core/remote/member.js';
import { ManualClock } from '../manual_clock.js';

/** A breaker of three failures and a pause of a second, and the clock that it goes by. */
function made(): { breaker: Breaker; clock: ManualClock; fail: (times: number) => readonly boolean[] } {
  const clock = new ManualClock();
  const breaker = new Breaker(clock, 3, 1_000);
  let request = 0;
  const fail = (times: number): readonly boolean[] => Array.from({ length: times }, () => breaker.failed(request++));
  return { breaker, clock, fail };
}

it('blocks after so many failures in a row, and says when it begins to', () => {
  const { breaker, fail } = made();
  expect(breaker.blocks).toBe(false);
  expect([fail(2), breaker.blocks]).toEqual([[false, false], false]);
  expect([fail(1), breaker.blocks]).toEqual([[true], true]);
  // Requests that were in flight when it closed.
  expect([fail(2), breaker.blocks, breaker.failures]).toEqual([[false, false], true, 3]);
});

it('counts failures in a row: a success between them begins again', () => {
  const { breaker, fail } = made();
  fail(2);
  breaker.succeeded();
  fail(2);
  expect(breaker.blocks).toBe(false);
  fail(1);
  expect(breaker.blocks).toBe(true);
});

it('counts a request once, however often it fails', () => {
  const { breaker } = made();
  for (const request of ['a', 'b', 'a', 'b', 'b', 'a']) breaker.failed(request);
  expect([breaker.failures, breaker.blocks]).toEqual([2, false]);
  expect(breaker.failed('c')).toBe(true);
});

it('lets one caller through when the pause is over, and the next one only after another pause', async () => {
  const { breaker, clock, fail } = made();
  await clock.pass(5_000);
  fail(3);
  await clock.pass(999);
  expect(breaker.blocks).toBe(true);
  await clock.pass(1);
  expect(breaker.blocks).toBe(false);
  breaker.requested();
  expect(breaker.blocks).toBe(true);
  // The one that was let through fails, too, and one that was in flight asks again.
  fail(1);
  breaker.requested();
  await clock.pass(999);
  expect(breaker.blocks).toBe(true);
  await clock.pass(1);
  expect(breaker.blocks).toBe(false);
});

it('is not closed for longer by failures that come while it is', async () => {
  const { breaker, clock, fail } = made();
  fail(3);
  await clock.pass(600);
  fail(1);
  await clock.pass(400);
  expect(breaker.blocks).toBe(false);
});

it('lets everyone through once one that was let through has succeeded', async () => {
  const { breaker, clock, fail } = made();
  fail(3);
  await clock.pass(1_000);
  breaker.requested();
  breaker.succeeded();
  breaker.requested();
  expect(breaker.blocks).toBe(false);
});

describe('the adaptive limit', () => {
  it('starts at the cap and never goes above it', () => {
    const limit = new AdaptiveLimit(new ManualClock(), 4);
    for (let i = 0; i < 100; i++) limit.start()('carried');
    expect(limit.limit).toBe(4);
    const ends = Array.from({ length: 4 }, () => limit.start());
    expect([limit.inFlight, limit.hasRoom, limit.load]).toEqual([4, false, 1]);
    ends[0]('nothing');
    ends[0]('nothing');
    expect(limit.inFlight).toBe(3);
  });

  it('is halved once for all requests that met the same overload, and again for later ones', async () => {
    const clock = new ManualClock();
    const limit = new AdaptiveLimit(clock, 64);
    const together = Array.from({ length: 64 }, () => limit.start());
    await clock.pass(100);
    for (const end of together) end('overloaded');
    expect(limit.limit).toBe(32);
    await clock.pass(1);
    limit.start()('overloaded');
    expect(limit.limit).toBe(16);
    for (let i = 0; i < 20; i++) {
      await clock.pass(1);
      limit.start()('overloaded');
    }
    expect(limit.limit).toBe(1);
    expect(limit.hasRoom).toBe(true);
  });

  it('grows by one for as many good requests as the limit', async () => {
    const clock = new ManualClock();
    const limit = new AdaptiveLimit(clock, 16);
    await clock.pass(1);
    limit.start()('overloaded');
    expect(limit.limit).toBe(8);
    for (let i = 0; i < 9; i++) limit.start()('carried');
    expect(limit.limit).toBe(9);
    limit.start()('nothing');
    expect(limit.limit).toBe(9);
    for (let i = 0; i < 200; i++) limit.start()('carried');
    expect(limit.limit).toBe(16);
  });
});
