import { expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';

const COUNT = 200_000;
const moment = (values: Float32Array, power: number): number =>
  values.reduce((sum, value) => sum + value ** power, 0) / values.length;

it.each(['normal', 'normals'] as const)('draws standard normal numbers by `%s`', (by) => {
  const stream = new RandomStream('moments');
  const drawn =
    by === 'normals'
      ? stream.normals(new Float32Array(COUNT))
      : Float32Array.from({ length: COUNT }, () => stream.normal());
  // The standard errors of the first four moments are 0.0022, 0.0032, 0.0087 and 0.022.
  expect(Math.abs(moment(drawn, 1))).toBeLessThan(0.01);
  expect(Math.abs(moment(drawn, 2) - 1)).toBeLessThan(0.015);
  expect(Math.abs(moment(drawn, 3))).toBeLessThan(0.04);
  expect(Math.abs(moment(drawn, 4) - 3)).toBeLessThan(0.1);
  // Neighbors, of which the polar method makes a pair, are independent.
  const products = drawn.subarray(1).map((value, i) => value * drawn[i]);
  expect(Math.abs(moment(products, 1))).toBeLessThan(0.01);
  const beyond = drawn.filter((value) => Math.abs(value) > 3).length / COUNT;
  expect(Math.abs(beyond - 0.0027)).toBeLessThan(0.0005);
});

it('fills an array of an odd length, equally for equal keys', () => {
  const fill = (key: string): Float32Array => new RandomStream(key).normals(new Float32Array(5));
  expect(fill('a')).toEqual(fill('a'));
  expect(fill('a')).not.toEqual(fill('b'));
  expect(fill('a').every((value) => Number.isFinite(value) && value !== 0)).toBe(true);
});
