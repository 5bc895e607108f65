import { describe, expect, it } from 'vitest';
import { accusedOf, examined } from './biased.js';

describe('40 exams of a sound rule judge', () => {
  it.each([0, 0.1])('accuse at most two, with noise %f', async (noise) => {
    const accused: string[][] = [];
    for (let seed = 1; seed <= 40; seed++) accused.push(accusedOf(await examined({ noise }, seed, 49)));
    expect(accused.filter((faults) => faults.length > 0).length).toBeLessThanOrEqual(2);
  });
});
