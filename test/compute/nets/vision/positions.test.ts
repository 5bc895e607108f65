import { describe, expect, it } from 'vitest';
import { plainProcessor } from '../../../../src/models/images/processor.js';
import { positionsOf } from '../../../../src/compute/nets/vision/layout.js';
import { sizes } from './fixture.js';

const config = {
  family: 'qwen2_5_vl',
  image_token_id: 7,
  video_token_id: 8,
  spatial_merge_size: 2,
  tokens_per_second: 2,
} as const;
const processor = plainProcessor(sizes, { min_pixels: 64, max_pixels: 64 });

function clip(steps: number, secondsPerStep: number) {
  const frame = { width: 8, height: 8, data: new Uint8Array(8 * 8 * 3) };
  return {
    ...processor.image(frame, 'here'),
    kind: 'video',
    grid: { steps, rows: 2, columns: 2 },
    secondsPerStep,
  } as const;
}

describe('positions of a clip', () => {
  it('go by its seconds, and those of the words behind it by its sides', () => {
    const { axes, next } = positionsOf([1, 8, 8, 8, 2, 3], [clip(3, 1.3)], config);
    expect(axes.map((axis) => [...axis])).toEqual([
      [0, 1, 3, 6, 2, 3],
      [0, 1, 1, 1, 2, 3],
      [0, 1, 1, 1, 2, 3],
    ]);
    expect(next).toBe(4);
  });

  it('are rounded as torch rounds them: 15 steps of 2.1 s are 62, and 63 by 64 bits', () => {
    expect(Math.trunc(15 * (2 * 2.1))).toBe(63);
    const { axes } = positionsOf(Array<number>(16).fill(8), [clip(16, 2.1)], config);
    expect(axes[0].at(-1)).toBe(62);
  });
});
