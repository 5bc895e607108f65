import { expect, it } from 'vitest';
import { BusyTime } from '../../../src/compute/onnx/session.js';

it('counts time in which works overlap once', () => {
  const busy = new BusyTime();
  busy.begin(10);
  busy.begin(12);
  busy.end(15);
  expect(busy.total).toBe(0);
  busy.end(20);
  busy.begin(30);
  busy.end(31);
  expect(busy.total).toBe(11);
});
