import { describe, expect, it } from 'vitest';
import { flowModelTypes } from '../../../src/policies/flow/model_types.js';

describe('the noise levels', () => {
  it('of FLUX at 512 pixels in six steps are those of its scheduler', () => {
    const known = [1, 0.9037, 0.7897, 0.6525, 0.4842, 0.273, 0];
    flowModelTypes.flux.sigmas(6, 1024).forEach((sigma, i) => expect(sigma).toBeCloseTo(known[i], 4));
  });

  it('of Qwen-Image end with 0.02 before 0', () => {
    const levels = flowModelTypes.qwen.sigmas(4, 256);
    // mu = 0.5: e^0.5 / (e^0.5 + 1 / sigma - 1) at 0.75, 0.5, 0.25, stretched so that the last is 0.02.
    const plain = [0.75, 0.5, 0.25].map((sigma) => 1.6487213 / (1.6487213 + 1 / sigma - 1));
    const known = [1, ...plain.map((sigma) => 1 - ((1 - sigma) * 0.98) / (1 - plain[2])), 0];
    levels.forEach((sigma, i) => expect(sigma).toBeCloseTo(known[i], 6));
    expect(levels[3]).toBeCloseTo(0.02, 12);
  });

  it('of the tiny model fall evenly', () => {
    expect(flowModelTypes.tiny.sigmas(4)).toEqual([1, 0.75, 0.5, 0.25, 0]);
  });
});
