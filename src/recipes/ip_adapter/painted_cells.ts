/** The cells of a picture that is painted into: the model's tokens, of which those are the region that hold a pixel to be painted. */
import type { Regions } from '../../train/credit.js';
import type { InpaintPrompt } from './task.js';

/** Row by row, 1 for a token with a pixel to be painted. */
export function paintedCells({ pictures: { mask }, flow }: Pick<InpaintPrompt, 'pictures' | 'flow'>): Uint8Array {
  const { rows, columns } = flow;
  const [high, wide] = [mask.height / rows, mask.width / columns];
  const cells = new Uint8Array(rows * columns);
  for (let y = 0; y < mask.height; y++) {
    for (let x = 0; x < mask.width; x++) {
      if (mask.data[3 * (y * mask.width + x)] === 0) continue;
      cells[Math.floor(y / high) * columns + Math.floor(x / wide)] = 1;
    }
  }
  return cells;
}

/** The region of a prompt is its mask, whatever answers do; each step of the solver draws all cells. */
export const maskRegions: Regions<InpaintPrompt, unknown> = {
  share: 1,
  border: 0,
  cellsOf: (prompt) => {
    const { rows: height, columns: width } = prompt.flow;
    return { height, width, ofAction: null, changed: paintedCells(prompt) };
  },
  labelled: paintedCells,
};
