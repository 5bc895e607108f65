/** The vector kernels against plain loops: every length about a vector of four and a block, bit for bit. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { stepInPlace, sumOfSquares, type StepFactors } from '../../../src/engines/onnx/kernels.js';

const block = 2 ** 14;
const lengths = [0, 1, 2, 3, 4, 5, 7, 8, block - 1, block, block + 1, block + 6, 3 * block + 3];

const stream = new RandomStream('kernels');
const numbers = (length: number, of: () => number): Float32Array => Float32Array.from({ length }, of);
const normal = (): number => stream.normal();
const positive = (): number => stream.uniform() ** 2;

const factors: StepFactors = {
  clip: 0.3,
  beta1: 0.9,
  beta2: 0.95,
  scale: 0.01,
  rootCorrection: 1.7,
  eps: 1e-8,
  remaining: 0.999,
};

/** The same in float64, rounded where it is stored. */
function plainStep(w: Float32Array, m: Float32Array, v: Float32Array, g: Float32Array): void {
  const { clip, beta1, beta2, scale, rootCorrection, eps, remaining } = factors;
  const [fresh1, fresh2] = [1 - beta1, 1 - beta2];
  for (let i = 0; i < w.length; i++) {
    const d = Math.fround(g[i] * clip);
    const first = beta1 * m[i] + fresh1 * d;
    const second = beta2 * v[i] + fresh2 * d * d;
    m[i] = first;
    v[i] = second;
    w[i] = w[i] * remaining - (scale * first) / (Math.sqrt(second) * rootCorrection + eps);
  }
}

describe('a step', () => {
  it.each(lengths)('of %i elements is that of a plain loop, and changes nothing beside them', (length) => {
    const arrays = [normal, normal, positive, normal].map((of) => numbers(length + 5, of));
    const expected = arrays.map((array) => array.slice());
    plainStep(...(expected.map((array) => array.subarray(2, 2 + length)) as Parameters<typeof plainStep>));
    const [w, m, v, g] = arrays.map((array) => array.subarray(2, 2 + length));
    stepInPlace(w, m, v, g, factors);
    arrays.forEach((array, i) => expect(Buffer.from(array.buffer).equals(Buffer.from(expected[i].buffer))).toBe(true));
  });
});

describe('the sum of squares', () => {
  it.each(lengths)('of %i elements is that of a plain loop', (length) => {
    const x = numbers(length, normal);
    const sums = [0, 0, 0, 0];
    x.forEach((one, i) => (sums[i < length - (length % 4) ? i % 4 : 0] += one * one));
    expect(sumOfSquares(x)).toBe(sums[0] + sums[1] + (sums[2] + sums[3]));
  });
});
