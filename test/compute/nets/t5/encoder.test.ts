import { expect, it } from 'vitest';
import { bucketOf } from '../../../../src/compute/nets/t5.js';

/** Distances from -600 to 600 as transformers' T5Attention sorts them: buckets, and how many distances in a row each has. */
const known = {
  '32 of 128':
    '15x510 14x27 13x18 12x14 11x9 10x7 9x4 8x4 7x1 6x1 5x1 4x1 3x1 2x1 1x1 0x1 17x1 18x1 19x1 20x1 21x1 22x1 23x1 24x4 25x4 26x7 27x9 28x14 29x18 30x27 31x510',
  '32 of 64':
    '15x551 14x11 13x9 12x7 11x5 10x4 9x3 8x3 7x1 6x1 5x1 4x1 3x1 2x1 1x1 0x1 17x1 18x1 19x1 20x1 21x1 22x1 23x1 24x3 25x3 26x4 27x5 28x7 29x9 30x11 31x551',
  '8 of 20': '3x594 2x5 1x1 0x1 5x1 6x5 7x594',
};

it.each(Object.entries(known))('sorts distances into buckets as transformers: %s', (sizes, runs) => {
  const [buckets, farthest] = sizes.split(' of ').map(Number);
  const config = { relative_attention_num_buckets: buckets, relative_attention_max_distance: farthest };
  const expected = runs.split(' ').flatMap((run) => {
    const [bucket, count] = run.split('x').map(Number);
    return new Array<number>(count).fill(bucket);
  });
  expect(Array.from({ length: 1201 }, (_, i) => bucketOf(i - 600, config))).toEqual(expected);
});
