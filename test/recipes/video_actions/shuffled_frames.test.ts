import { describe, expect, it } from 'vitest';
import { shuffledFrames } from '../../../src/recipes/video_actions/question_pictures.js';
import { plain } from '../../data/pictures.js';
import { decodePlainPng } from '../../../src/core/png.js';
import { must } from '../../../src/core/errors.js';

const frame = (red: number) => must(decodePlainPng(plain(2, 2, [red, 0, 0])), 'a frame');

describe('shuffled frames', () => {
  it('never are in their own order, where another one is possible', () => {
    for (let clip = 0; clip < 20; clip++) {
      const two = [frame(clip), frame(100 + clip)];
      expect(shuffledFrames(1)(two)).toEqual([two[1], two[0]]);
    }
    for (let clip = 0; clip < 100; clip++) {
      const still = [frame(clip), frame(clip), frame(200)];
      expect(shuffledFrames(1)(still)).not.toEqual(still);
    }
    expect(shuffledFrames(1)([frame(7), frame(7)])).toEqual([frame(7), frame(7)]);
    const one = [frame(7)];
    expect(shuffledFrames(1)(one)).toEqual(one);
    expect(shuffledFrames(1)([])).toEqual([]);
  });

  it('differ between clips and seeds', () => {
    const orders = [1, 2, 3, 4].flatMap((seed) =>
      [0, 100].map((red) => {
        const frames = Array.from({ length: 8 }, (_, at) => frame(red + at));
        return shuffledFrames(seed)(frames)
          .map((one) => frames.indexOf(one))
          .join();
      }),
    );
    expect(new Set(orders).size).toBe(8);
  });
});
