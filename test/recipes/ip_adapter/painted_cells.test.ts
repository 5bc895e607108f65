import { describe, expect, it } from 'vitest';
import { maskRegions, paintedCells } from '../../../src/recipes/ip_adapter/painted_cells.js';
import type { InpaintPrompt } from '../../../src/recipes/ip_adapter/task.js';
import { regionOf } from '../../../src/train/credit.js';

/** A mask of 6x4 pixels in 3x2 tokens, from rows in which # is painted. */
function prompt(...rows: readonly string[]): InpaintPrompt {
  const pixels = [...rows.join('')].flatMap((one) => new Array<number>(3).fill(one === '#' ? 255 : 0));
  const mask = { width: 6, height: 4, data: Uint8Array.from(pixels) };
  return { pictures: { mask }, flow: { rows: 2, columns: 3 } } as unknown as InpaintPrompt;
}

describe('the cells of a picture that is painted into', () => {
  it.each([
    ['of all four pixels', ['....##', '....##', '......', '......'], [0, 0, 1, 0, 0, 0]],
    ['of one pixel', ['......', '......', '......', '...#..'], [0, 0, 0, 0, 1, 0]],
    ['across tokens', ['......', '.##...', '.##...', '......'], [1, 1, 0, 1, 1, 0]],
    ['of none', ['......', '......', '......', '......'], [0, 0, 0, 0, 0, 0]],
  ])('are the tokens that hold a part of the mask: %s', (_, rows, expected) => {
    expect([...paintedCells(prompt(...rows))]).toEqual(expected);
  });

  it('are the region of every group, whatever is painted', () => {
    const asked = prompt('....##', '......', '......', '......');
    const { cellsOf, labelled, ...options } = maskRegions;
    const drawn = cellsOf(asked, null);
    expect(drawn).toMatchObject({ height: 2, width: 3, ofAction: null });
    expect(regionOf([drawn, drawn], options, labelled?.(asked))?.cells).toEqual(Uint8Array.of(0, 0, 1, 0, 0, 0));
  });
});
