/**
 * The tiny world's captioned images: two or three things on a grid of two by two cells, placed as the caption says.
 *
 *   <root>/captioned-<hash>/captioned/{train,validation}/N.png        the images
 *                                    …/plain.jsonl, …/odd.jsonl      {"file_name", "text"}: each image once, in plain or in odd words
 *
 * A model that learns only from `plain` knows no odd words. No caption of a `validation` image occurs in any other split, including those of
 * words.ts.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/files.js';
import type { RgbImage } from '../../core/images/image.js';
import { encodePlainPng } from '../../core/images/png.js';
import { RandomStream } from '../../core/random.js';
import type { TinyCaptionedSettings } from './settings.js';
import { tinyDataset } from './build.js';
import { drawScene } from './draw.js';
import { drawDescribed, type Caption, type CaptionScene } from './words.js';
import type { CellContent, Relation } from './world.js';

export const CAPTIONED_SPLITS = ['train', 'validation'] as const;
export type CaptionedSplit = (typeof CAPTIONED_SPLITS)[number];

export interface CaptionedOptions {
  readonly seed: number;
  /** Images in each split. */
  readonly sizes: Readonly<Record<CaptionedSplit, number>>;
}

/** Cells of an image's side, and pixels of a cell's. */
const GRID = 2;
const CELL = 8;
/** Side of an image in pixels. */
export const CAPTIONED_SIDE = GRID * CELL;

/** The cells of the first and the second thing. The third is in the last cell. */
const PLACES: Readonly<Record<Relation, readonly [number, number]>> = {
  above: [0, 2],
  below: [2, 0],
  'left-of': [0, 1],
  'right-of': [1, 0],
};
const THIRD = 3;

/** Draws the content of a caption: the same things in the same places give the same image. */
export function drawCaptioned({ things, relation }: CaptionScene): RgbImage {
  const cells = new Array<CellContent>(GRID ** 2).fill(null);
  [...PLACES[relation], THIRD].forEach((cell, i) => (cells[cell] = things[i] ?? null));
  return drawScene({ geometry: { columns: GRID, rows: GRID, cell: CELL }, cells });
}

/** The caption at an index of a split, with its content: a pure function of all three arguments. */
export function captionedAt(seed: number, split: CaptionedSplit, index: number): Caption & CaptionScene {
  return drawDescribed(new RandomStream(seed, 'tiny', 'captioned', split, index), split);
}

/** The images of each split. */
export const captionedData = tinyDataset<TinyCaptionedSettings, CaptionedOptions>({
  things: 'captioned pictures',
  name: 'captioned',
  optionsOf: ({ seed, counts }) => ({ seed, sizes: counts }),
  entryOf: ({ seed, sizes }) => ({ seed, sizes: { ...sizes } }),
  write: async (folder, options) => {
    for (const split of CAPTIONED_SPLITS) {
      const place = join(folder, 'captioned', split);
      mkdirSync(place, { recursive: true });
      const lists: Record<'plain' | 'odd', string[]> = { plain: [], odd: [] };
      for (let i = 0; i < options.sizes[split]; i++) {
        const drawn = captionedAt(options.seed, split, i);
        const name = `${i}.png`;
        writeFileSync(join(place, name), encodePlainPng(drawCaptioned(drawn)));
        lists.plain.push(JSON.stringify({ file_name: name, text: drawn.expected }));
        lists.odd.push(JSON.stringify({ file_name: name, text: drawn.prompt }));
      }
      for (const [list, lines] of Object.entries(lists)) {
        writeFileAtomic(join(place, `${list}.jsonl`), `${lines.join('\n')}\n`);
      }
    }
  },
});
