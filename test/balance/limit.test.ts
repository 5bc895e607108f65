import { describe, expect, it } from 'vitest';
import { AdaptiveLimit } from '../../src/balance/limit.js';
import { ManualClock } from '../core/manual_clock.js';

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
