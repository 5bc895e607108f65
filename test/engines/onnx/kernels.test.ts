/** The vector kernels against plain loops: every length about a vector of four and a block, bit for bit. */
import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { stepInPlace, sumOfSquares, type StepFactors } from '../../../src/engines/onnx/kernels.js';

const f = Math.fround;
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

/** The same with one rounding to float32 after every operation. */
function plainStep(w: Float32Array, m: Float32Array, v: Float32Array, g: Float32Array): void {
  const { clip, beta1, beta2, scale, rootCorrection, eps, remaining } = factors;
  for (let i = 0; i < w.length; i++) {
    const d = f(g[i] * f(clip));
    m[i] = f(m[i] * f(beta1)) + f(d * f(1 - beta1));
    v[i] = f(v[i] * f(beta2)) + f(f(d * d) * f(1 - beta2));
    const divisor = f(f(f(Math.sqrt(v[i])) * f(rootCorrection)) + f(eps));
    w[i] = f(w[i] * f(remaining)) - f(f(m[i] * f(scale)) / divisor);
  }
}

describe('a step', () => {
  it.each(lengths)('of %i elements is that of a plain loop in float32, and changes nothing beside them', (length) => {
    const arrays = [normal, normal, positive, normal].map((of) => numbers(length + 5, of));
    const expected = arrays.map((array) => array.slice());
    plainStep(...(expected.map((array) => array.subarray(2, 2 + length)) as Parameters<typeof plainStep>));
    const [w, m, v, g] = arrays.map((array) => array.subarray(2, 2 + length));
    stepInPlace(w, m, v, g, factors);
    arrays.forEach((array, i) => expect(Buffer.from(array.buffer).equals(Buffer.from(expected[i].buffer))).toBe(true));
  });
});

describe('the sum of squares', () => {
  it.each(lengths)('of %i elements is that in float64', (length) => {
    const x = numbers(length, normal);
    const expected = x.reduce((sum, one) => sum + one * one, 0);
    // What an array before it left behind in the kernel's memory does not count.
    sumOfSquares(new Float32Array(block).fill(1e10));
    expect(Math.abs(sumOfSquares(x) - expected)).toBeLessThanOrEqual(1e-13 * length * (expected + 1e-9));
    expect(sumOfSquares(x)).toBe(sumOfSquares(x));
  });
});
