import { describe, expect, it } from 'vitest';
import { sessionOptions } from '../../../src/engines/onnx/session_options.js';

describe('what a config says to a session', () => {
  it.each([
    [0, 0, undefined],
    [4, 0, 4],
    [4, 1, 1],
    [0, 1, 1],
  ])('engine.threads %i with rollout.threads %i: %s', (engine, rollout, threads) => {
    expect(sessionOptions({ provider: 'cpu', threads: engine }, rollout).threads).toBe(threads);
  });
});
