/** The cells of the picture in an answer: its vision codes, compared with those of the source. A pure function. */
import type { CodeGrid } from '../../data/types.js';
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
  if (grid === null || grid.height !== height || grid.width !== width) return null;
  const ofAction = new Int32Array(ids.length).fill(-1);
  for (let cell = 0; cell < height * width; cell++) {
    // Every row is followed by its end of line.
    ofAction[firstCode + cell + Math.floor(cell / width)] = cell;
  }
  return {
    height,
    width,
    ofAction,
    changed: Uint8Array.from(grid.codes, (code, i) => (code === source.codes[i] ? 0 : 1)),
  };
}
