import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../src/core/random.js';
import { outlineOf, shareInside } from '../../../src/web/page/region.js';

/** The unit borders that a path draws, as "h row column" and "v row column". */
function bordersOf(path: string): string[] {
  return [...path.matchAll(/M(\d+) (\d+)([HV])(\d+)/g)].flatMap(([, x, y, kind, to]) => {
    const [column, row, end] = [x, y, to].map(Number);
    return kind === 'H'
      ? Array.from({ length: end - column }, (_, i) => `h ${row} ${column + i}`)
      : Array.from({ length: end - row }, (_, i) => `v ${row + i} ${column}`);
  });
}

/** Every side of every cell that only one of two neighbours has. */
function sidesOf({ height, width, cells }: { height: number; width: number; cells: string }): string[] {
  const sides = new Map<string, number>();
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      if (cells[row * width + column] !== '1') continue;
      for (const side of [
        `h ${row} ${column}`,
        `h ${row + 1} ${column}`,
        `v ${row} ${column}`,
        `v ${row} ${column + 1}`,
      ]) {
        sides.set(side, (sides.get(side) ?? 0) + 1);
      }
    }
  }
  return [...sides].flatMap(([side, times]) => (times === 1 ? [side] : []));
}

describe('the outline of a region', () => {
  it('goes round a single cell', () => {
    expect(outlineOf({ height: 3, width: 4, cells: '000001000000' })).toBe('M1 1H2M1 2H2M1 1V2M2 1V2');
  });

  it('is one line along neighbouring cells, and runs along the edge of the picture', () => {
    expect(outlineOf({ height: 2, width: 3, cells: '111000' })).toBe('M0 0H3M0 1H3M0 0V1M3 0V1');
  });

  it('is the borders between inside and outside, each once, for any region', () => {
    const random = new RandomStream(7, 'regions');
    for (let made = 0; made < 50; made++) {
      const [height, width] = [1 + random.integer(7), 1 + random.integer(7)];
      const cells = Array.from({ length: height * width }, () => random.integer(2)).join('');
      const drawn = bordersOf(outlineOf({ height, width, cells }));
      expect(drawn.sort()).toEqual(sidesOf({ height, width, cells }).sort());
    }
  });

  it('has a share of the picture inside', () => {
    expect(shareInside({ height: 2, width: 3, cells: '110001' })).toBe(0.5);
  });
});
