/** The steps of the solver against values worked out apart from the code. */
import { describe, expect, it } from 'vitest';
import { gaussianOf, noisyRange, odeStep, sdeStep } from '../../../../src/train/policies/flow/steps.js';

/** diffusers' scheduler without custom levels, shift 3, ten steps: its range is shifted twice. */
const LEVELS = [1, 0.9601, 0.9133, 0.8577, 0.7904, 0.7073, 0.6022, 0.4649, 0.278, 0.0089, 0];

describe('sdeStep', () => {
  it('has the deviations of flow_grpo at noise level 0.7', () => {
    // By hand from s = 0.7 sqrt(sigma / (1 - sigma)) sqrt(-dt), the first with 0.9601 inside 1 - sigma: 0.7 sqrt(1 / 0.0399) sqrt(0.0399).
    const known = [0.7, 0.743, 0.5362, 0.4459, 0.3918, 0.3528, 0.3191, 0.282, 0.2254, 0.0063];
    const found = known.map((_, at) => sdeStep(LEVELS, at, 0.7).deviation);
    found.forEach((deviation, at) => expect(Math.abs(deviation - known[at])).toBeLessThan(1.5e-3));
    expect(found[0]).toBeCloseTo(0.7, 12);
  });

  it('computes one step as it is written', () => {
    // sigma = 0.5, sigma' = 0.4, a = 0.8: s^2 = 0.64, dt = -0.1; x factor 1 - 0.64 * 0.1 / 1 = 0.936; v factor -0.1 (1 + 0.64 * 0.5 / 1) = -0.132;
    // deviation 0.8 sqrt(0.1) = 0.2529822.
    const step = sdeStep([1, 0.5, 0.4, 0], 1, 0.8);
    expect(step.sigma).toBe(0.5);
    expect(step.ofX).toBeCloseTo(0.936, 12);
    expect(step.ofVelocity).toBeCloseTo(-0.132, 12);
    expect(step.deviation).toBeCloseTo(0.25298221, 8);
    // N(0.936 x - 0.132 v, deviation) at a point 0.1 off its mean: -0.5 (0.1 / 0.2529822)^2 - ln 0.2529822 - 0.9189385.
    const { precision, offset } = gaussianOf(step);
    expect(offset - precision * 0.01).toBeCloseTo(-0.078125 + 1.3744362 - 0.9189385, 6);
  });

  it('keeps the marginals of a flow: noise of a point mass stays that of the next level', () => {
    // With x0 = 0 all x at level sigma are sigma eps and v = x / sigma; the next ones must have the deviation sigma' but for O(dt^2).
    const steps = 4000;
    const levels = Array.from({ length: steps + 1 }, (_, i) => 1 - i / steps);
    let variance = levels[1] ** 2;
    for (let at = 1; at < steps / 2; at++) {
      const { sigma, ofX, ofVelocity, deviation } = sdeStep(levels, at, 0.7);
      variance = (ofX + ofVelocity / sigma) ** 2 * variance + deviation ** 2;
    }
    expect(Math.sqrt(variance)).toBeCloseTo(0.5, 2);
  });

  it('is the step of the ODE without noise', () => {
    expect(sdeStep(LEVELS, 4, 0)).toEqual({ ...odeStep(LEVELS, 4), deviation: 0 });
  });
});

describe('noisyRange', () => {
  const all = { noiseLevel: 0.7, fraction: 0.99, window: null };

  it('leaves out the last steps', () => {
    expect(noisyRange(10, all, 0.5)).toEqual([0, 9]);
    expect(noisyRange(10, { ...all, fraction: 0.6 }, 0.5)).toEqual([0, 6]);
    expect(noisyRange(10, { ...all, noiseLevel: 0 }, 0.5)).toEqual([0, 0]);
  });

  it('draws a window in its range, every place equally often', () => {
    const window = { size: 2, range: [1, 6] as const };
    const draws = [0, 0.24, 0.26, 0.74, 0.76, 0.9999].map((uniform) => noisyRange(10, { ...all, window }, uniform));
    expect(draws).toEqual([
      [1, 3],
      [1, 3],
      [2, 4],
      [3, 5],
      [4, 6],
      [4, 6],
    ]);
  });

  it('draws a window that ends with the noisy steps, where its range continues', () => {
    const settings = { ...all, fraction: 0.6, window: { size: 2, range: [1, 9] as const } };
    expect([0, 0.9999].map((uniform) => noisyRange(10, settings, uniform))).toEqual([
      [1, 3],
      [4, 6],
    ]);
  });

  it('counts 29 noisy steps of 50 at a fraction of 0.58, whose product in float64 is smaller', () => {
    expect(50 * 0.58).toBeLessThan(29);
    expect(noisyRange(50, { ...all, fraction: 0.58 }, 0.5)).toEqual([0, 29]);
  });

  it('rejects a window that does not fit', () => {
    const window = { size: 4, range: [7, 10] as const };
    expect(() => noisyRange(10, { ...all, window }, 0)).toThrow(
      'a window of 4 noisy steps does not fit into steps 7 to 9 of 10',
    );
  });
});
