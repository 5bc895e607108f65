import { expect, it, vi } from 'vitest';
import { Deadline, sleep, systemClock } from '../../src/core/clock.js';

it('lets many wait within one limit, of which Node does not warn as of a leak', async () => {
  const warned = vi.fn();
  process.on('warning', warned);
  const deadline = new Deadline(systemClock, 10_000);
  await Promise.all(Array.from({ length: 50 }, () => sleep(systemClock, 1, deadline.signal)));
  // Warnings are emitted in a later turn.
  await new Promise((resolve) => setImmediate(resolve));
  process.off('warning', warned);
  expect(warned).not.toHaveBeenCalled();
  deadline.dispose();
});
