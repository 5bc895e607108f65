/** Pictures of 256x256 for the judge's benchmark: flat shapes on a background, one source for every group of eight and one edit for every item. */
import { RandomStream } from '../../src/core/random.js';
import type { RgbImage } from '../../src/core/image.js';
import type { JudgeItem } from '../../src/rewards/score/types.js';

const SIDE = 256;
const SHAPES = 12;
const GROUP = 8;

/** Rectangles, each in one colour. */
function picture(...key: readonly (number | string)[]): RgbImage {
  const random = new RandomStream(...key);
  const data = new Uint8Array(SIDE * SIDE * 3);
  fill(data, [0, 0, SIDE, SIDE], random);
  for (let shape = 0; shape < SHAPES; shape++) {
    const [x, y] = [random.integer(SIDE - 48), random.integer(SIDE - 48)];
    fill(data, [x, y, x + 16 + random.integer(32), y + 16 + random.integer(32)], random);
  }
  return { width: SIDE, height: SIDE, data };
}

function fill(data: Uint8Array, [left, top, right, bottom]: readonly number[], random: RandomStream): void {
  const colour = [random.integer(256), random.integer(256), random.integer(256)];
  for (let y = top; y < bottom; y++) {
    for (let at = (y * SIDE + left) * 3; at < (y * SIDE + right) * 3; at += 3) {
      data[at] = colour[0];
      data[at + 1] = colour[1];
      data[at + 2] = colour[2];
    }
  }
}

/** Items `first` to `first + count`; the same number always gives the same item. */
export function editedItems(count: number, first = 0): JudgeItem[] {
  const sources = new Map<number, RgbImage>();
  return Array.from({ length: count }, (_, i): JudgeItem => {
    const item = first + i;
    const group = Math.floor(item / GROUP);
    const source = sources.get(group) ?? picture('source', group);
    sources.set(group, source);
    return {
      key: `1/${group}/${item % GROUP}`,
      instruction: `make shape ${group} darker`,
      source,
      edited: picture('edited', item),
      truth: null,
      finished: true,
    };
  });
}
