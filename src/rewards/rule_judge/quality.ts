/** Perceptual quality, from pixels alone: the two scores of VIEScore's second question. */
import { BACKGROUND, PALETTE, templateOf, type Rgb } from '../../data/tiny/draw.js';
import { COLOURS, type Geometry } from '../../data/tiny/world.js';
import { cellPixels, type Reading } from './read_scene.js';

export interface QualityScore {
  /** 0 to 10: 10 if all colors are those of the world. */
  readonly naturalness: number;
  /** 0 to 10: 10 if no shape is broken and cells join without seams. */
  readonly artifacts: number;
  readonly reasoning: string;
}

/** A pixel farther than this from every color of the world (root mean square over channels) is off the palette. */
const OFF_PALETTE = 30;
/** The shares of a cell's pixels off the palette at which its penalty begins and is full. */
const OFF_PALETTE_RANGE = [0.25, 0.75] as const;
/** The deviations from the nearest template at which a cell's penalty begins and is full. */
const DEVIATION_RANGE = [12, 40] as const;
/** The excesses of a border's color steps over the drawn ones (root mean square) at which its penalty begins and is full. */
const SEAM_RANGE = [24, 64] as const;

const ALL_COLOURS: readonly Rgb[] = [BACKGROUND, ...COLOURS.map((colour) => PALETTE[colour])];

/** 0 up to the start of the range, 1 from its end, linear in between. */
function ramp(value: number, [from, to]: readonly [number, number]): number {
  return Math.min(1, Math.max(0, (value - from) / (to - from)));
}

/** One bad cell is visible at once, and many are worse: `worst` weighs the worst penalty, `mean` the average. */
function gather(penalties: readonly number[], worst: number, mean: number): number {
  const sum = penalties.reduce((a, b) => a + b, 0);
  return worst * Math.max(...penalties) + (mean * sum) / penalties.length;
}

function toScore(penalty: number): number {
  return Math.round(10 * (1 - Math.min(1, penalty)));
}

function offPaletteShare(pixels: Uint8Array): number {
  const limit = 3 * OFF_PALETTE ** 2;
  let off = 0;
  for (let i = 0; i < pixels.length; i += 3) {
    let near = false;
    for (let colour = 0; colour < ALL_COLOURS.length && !near; colour++) {
      const red = pixels[i] - ALL_COLOURS[colour][0];
      const green = pixels[i + 1] - ALL_COLOURS[colour][1];
      const blue = pixels[i + 2] - ALL_COLOURS[colour][2];
      near = red * red + green * green + blue * blue <= limit;
    }
    if (!near) off += 1;
  }
  return off / (pixels.length / 3);
}

/** A cell's pixels and those of its read content. An unreadable cell is compared with an empty one. */
interface CellPixels {
  readonly seen: Uint8Array;
  readonly drawn: Uint8Array;
}

/** Root mean square difference between color steps across cell borders and the drawn ones. */
function seam(here: CellPixels, next: CellPixels, side: number, right: boolean): number {
  let sum = 0;
  for (let along = 0; along < side; along++) {
    const from = (right ? along * side + side - 1 : (side - 1) * side + along) * 3;
    const to = (right ? along * side : along) * 3;
    for (let channel = 0; channel < 3; channel++) {
      const step = next.seen[to + channel] - here.seen[from + channel];
      const drawnStep = next.drawn[to + channel] - here.drawn[from + channel];
      sum += (step - drawnStep) * (step - drawnStep);
    }
  }
  return Math.sqrt(sum / (side * 3));
}

function seamPenalties(cells: readonly CellPixels[], geometry: Geometry): number[] {
  const { columns, rows, cell: side } = geometry;
  const penalties: number[] = [];
  cells.forEach((here, cell) => {
    if (cell % columns < columns - 1) penalties.push(ramp(seam(here, cells[cell + 1], side, true), SEAM_RANGE));
    if (cell < columns * (rows - 1)) penalties.push(ramp(seam(here, cells[cell + columns], side, false), SEAM_RANGE));
  });
  return penalties;
}

/** Scores the quality of an image, regardless of its content. */
export function scoreQuality(reading: Reading): QualityScore {
  const { geometry } = reading;
  const cells = reading.cells.map(({ content }, cell) => ({
    seen: cellPixels(reading.image, geometry, cell),
    drawn: templateOf(content === 'unreadable' ? null : content, geometry.cell).pixels,
  }));
  const offPalette = cells.map(({ seen }) => ramp(offPaletteShare(seen), OFF_PALETTE_RANGE));
  const broken = reading.cells.map(({ content, deviation }) =>
    content === 'unreadable' ? 1 : ramp(deviation, DEVIATION_RANGE),
  );
  const naturalness = toScore(gather(offPalette, 0.3, 1));
  const artifacts = toScore(gather(broken, 0.3, 1) + 0.5 * gather(seamPenalties(cells, geometry), 0, 1));
  const brokenCells = reading.cells.filter(({ content }) => content === 'unreadable').length;
  return {
    naturalness,
    artifacts,
    reasoning: brokenCells === 0 ? 'All cells can be read.' : `Cells that cannot be read: ${brokenCells}.`,
  };
}
