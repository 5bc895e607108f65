import { describe, expect, it } from 'vitest';
import { onDevice, sessionOptions } from '../../../src/compute/onnx/session.js';

describe('session options of a config', () => {
  it.each([
    [0, 0, undefined],
    [4, 0, 4],
    [4, 1, 1],
    [0, 1, 1],
  ])('engine.threads %i with rollout.threads %i: %s', (engine, rollout, threads) => {
    expect(sessionOptions({ provider: 'cpu', threads: engine }, rollout).threads).toBe(threads);
  });

  it('is a GPU among those that the process sees, where one is placed there', () => {
    expect(sessionOptions({ provider: 'cuda', threads: 0, device: 2 })).toEqual({ provider: 'cuda', device: 2 });
    expect(onDevice('cuda', 2)).toEqual({ name: 'cuda', deviceId: 2 });
    expect([onDevice('cuda'), onDevice('cpu', 2)]).toEqual(['cuda', 'cpu']);
  });
});
