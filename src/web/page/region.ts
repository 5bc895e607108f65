/** The outline of a region of cells. Pure functions. */
import type { WireCredit } from '../wire.js';

type Cells = Pick<WireCredit, 'height' | 'width' | 'cells'>;

/** The path of an SVG whose units are cells: each border between a cell inside and one outside, or the picture's edge. */
export function outlineOf({ height, width, cells }: Cells): string {
  const isInside = (row: number, column: number): boolean =>
    column >= 0 && column < width && cells[row * width + column] === '1';
  const lines: string[] = [];
  // A line runs on along neighbouring cells, so that large pictures take few of them.
  const along = (count: number, length: number, isBorder: (at: number, step: number) => boolean, isRow: boolean) => {
    for (let at = 0; at <= count; at++) {
      for (let from = 0, to = 0; from < length; from = to + 1) {
        to = from;
        while (to < length && isBorder(at, to)) to++;
        if (to > from) lines.push(isRow ? `M${from} ${at}H${to}` : `M${at} ${from}V${to}`);
      }
    }
  };
  along(height, width, (row, column) => isInside(row - 1, column) !== isInside(row, column), true);
  along(width, height, (column, row) => isInside(row, column - 1) !== isInside(row, column), false);
  return lines.join('');
}

/** The share of cells inside. */
export function shareInside({ height, width, cells }: Cells): number {
  return [...cells].filter((cell) => cell === '1').length / (height * width);
}
