/** The cells of the picture in an answer: its vision codes, compared with those of the source. Pure functions. */
import { DataError } from '../../core/errors.js';
import type { CodeGrid, EditSample } from '../../data/types.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { Emu3Prompt } from '../../policies/tokens/emu3/format.js';
import type { TokenSpace } from '../../policies/tokens/emu3/space.js';
import type { DrawnCells } from '../../train/credit.js';

/** A prompt, as far as its cells are concerned. */
export interface CellPrompt {
  readonly sample: { readonly source: CodeGrid };
  readonly tokens: Pick<Emu3Prompt, 'imageOpen'>;
}

/** One cell per vision code; null if the answer holds no whole image of the source's size. */
export function drawnCells(
  { sample: { source }, tokens }: CellPrompt,
  { ids }: Pick<TokenAnswer, 'ids'>,
  space: TokenSpace,
): DrawnCells | null {
  const { grid, firstCode } = space.parse(ids, tokens.imageOpen);
  const { height, width } = source;
  if (grid === null || !isOfSize(grid, source)) return null;
  const ofAction = new Int32Array(ids.length).fill(-1);
  for (let cell = 0; cell < height * width; cell++) {
    // Every row is followed by its end of line.
    ofAction[firstCode + cell + Math.floor(cell / width)] = cell;
  }
  return { height, width, ofAction, changed: differing(grid, source) };
}

/** A sample, as far as its labelled cells are concerned. */
export interface LabelledSample {
  readonly id: string;
  readonly source: CodeGrid;
  readonly target: CodeGrid | null;
}

/** Whether a sample has labels of its source's size. */
export function hasLabel({ source, target }: LabelledSample): boolean {
  return target !== null && isOfSize(target, source);
}

/** Per cell, 1 where the labelled codes differ from the source's. Raises DataError for a sample without labels of the source's size. */
export function labelledCells({ id, source, target }: LabelledSample): Uint8Array {
  if (target !== null && isOfSize(target, source)) return differing(target, source);
  const { height, width } = source;
  const found = target === null ? 'no labelled edit' : `a labelled edit of ${target.height}x${target.width} codes`;
  throw new DataError(
    `found ${found} for a source of ${height}x${width}, where algorithm.advantage.region is 'label'`,
    {
      where: id,
      next: "Train on data whose samples have labels of their source's size, or set algorithm.advantage.region to 'group'.",
    },
  );
}

/** Per cell, 1 where the sample's mask is white. Raises DataError for a sample without one. */
export function maskedCells({ id, mask }: Pick<EditSample, 'id' | 'mask'>): Uint8Array {
  if (mask !== null) return mask;
  throw new DataError("found no mask, where algorithm.advantage.region is 'mask'", {
    where: id,
    next: 'Train on data whose samples have masks (editrl data pack, with "mask" in each line), or set algorithm.advantage.region to \'group\'.',
  });
}

function isOfSize(grid: CodeGrid, { height, width }: CodeGrid): boolean {
  return grid.height === height && grid.width === width;
}

function differing(grid: CodeGrid, source: CodeGrid): Uint8Array {
  return Uint8Array.from(grid.codes, (code, i) => (code === source.codes[i] ? 0 : 1));
}
