import { describe, expect, it } from 'vitest';
import { flowModelTypes } from '../../../../src/train/policies/flow/model_types.js';
import { sdeStep } from '../../../../src/train/policies/flow/steps.js';

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

  it('of Stable Diffusion 3 are shifted by 3, in a range whose end is shifted already', () => {
    const known = [1, 0.9601, 0.9133, 0.8577, 0.7904, 0.7073, 0.6022, 0.4649, 0.278, 0.0089, 0];
    flowModelTypes.sd3.sigmas(10).forEach((sigma, i) => expect(sigma).toBeCloseTo(known[i], 4));
    expect(flowModelTypes.sd3.sigmas(10)).toHaveLength(11);
  });

  it.each(['flux', 'qwen', 'sd3'] as const)(
    'of %s begin with 1 to the bit for images of every size, so that the first step has noise of its own',
    (type) => {
      for (let tokens = 16; tokens <= 16_384; tokens += 16) {
        const sigmas = flowModelTypes[type].sigmas(10, tokens);
        expect(sigmas[0], `${tokens} tokens`).toBe(1);
        // The second level stands for 1 in the noise of the first step.
        const { deviation } = sdeStep(sigmas, 0, 0.7);
        expect(deviation, `${tokens} tokens`).toBeCloseTo(0.7, 12);
        expect(flowModelTypes[type].sigmas(1, tokens)).toEqual([1, 0]);
      }
    },
  );

  it('of the tiny model fall evenly', () => {
    expect(flowModelTypes.tiny.sigmas(4)).toEqual([1, 0.75, 0.5, 0.25, 0]);
  });
});
