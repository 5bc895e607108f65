/**
 * The tiny world's images and edits on disk, in the layout of real datasets. build.ts defines where they are stored:
 *
 *   <root>/images-<hash>/images/train/list/tokenized_datalist.json      PNG files for the image tokenizer
 *   <root>/edits-<hash>/{s,c}/{train,prompts,validation,truth}/list/tokenized_datalist.json   edits as .npz
 *   <root>/edits-<hash>/{s,c}/train_half/list/tokenized_datalist.json   the first half of train, for runs that see both sets
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/files.js';
import { InternalError } from '../../core/errors.js';
import { sha256, type RgbImage } from '../../core/images/image.js';
import { DATALIST_NAME } from '../datalist.js';
import { encodeEditSample } from '../npz.js';
import type { CodeGrid } from '../types.js';
import type { TinyWorldSettings } from './settings.js';
import { tinyDataset, throughJson } from './build.js';
import { drawScene } from './draw.js';
import { instructionOf, rationaleOf, type Plan } from './edits.js';
import {
  drawExample,
  drawImageScene,
  EDIT_MIXTURES,
  EDIT_SETS,
  EDIT_SPLITS,
  type EditMixture,
  type EditSetName,
  type EditSplitName,
} from './generate.js';
import { encodePlainPng } from '../../core/images/png.js';
import { checkGeometry, DEFAULT_GEOMETRY, type Geometry } from './world.js';

/** Converts pixels to vision codes: an image tokenizer that was trained on this world's images. */
export interface ImageTokenizerLike {
  /** Changes whenever the codes would, for example a hash of the weights. */
  readonly id: string;
  /** Codes of each image, in order. */
  encode(images: readonly RgbImage[]): Promise<CodeGrid[]>;
}

export interface TinyImageOptions {
  readonly seed: number;
  readonly geometry: Geometry;
  readonly count: number;
}

export interface TinyEditOptions {
  readonly seed: number;
  readonly geometry: Geometry;
  /** Edits per split, for each set. */
  readonly sizes: Readonly<Record<EditSplitName, number>>;
  /** Relative weights of the kinds of edit, by set. */
  readonly mixtures: Readonly<Record<EditSetName, EditMixture>>;
}

export const DEFAULT_TINY_IMAGES: TinyImageOptions = { seed: 42, geometry: DEFAULT_GEOMETRY, count: 1500 };

export const DEFAULT_TINY_EDITS: TinyEditOptions = {
  seed: 42,
  geometry: DEFAULT_GEOMETRY,
  sizes: { train: 400, prompts: 4096, validation: 320, truth: 512 },
  mixtures: EDIT_MIXTURES,
};

/** Number of images encoded at once. */
const ENCODE_BATCH = 256;

/** Lists the first half of a set's labeled split, so that two sets together have as many labels as one. */
const HALF = 'train_half';

/** The list of a set's split. The path of a dataset in a config. */
export function tinyDatalist(root: string, set: EditSetName | 'images', split: EditSplitName | typeof HALF): string {
  return join(root, set, split, 'list', DATALIST_NAME);
}

/** A list as written, with the SHA-256 of each file, by which the reader notices a change. */
interface WrittenList {
  readonly prefix?: string;
  readonly path_list: readonly string[];
  readonly sha256: readonly string[];
  /** The id of the tokenizer for the samples' codes. Absent for images. */
  readonly tokenizer?: string;
}

function writeList(folder: string, list: WrittenList): void {
  mkdirSync(join(folder, 'list'), { recursive: true });
  writeFileAtomic(join(folder, 'list', DATALIST_NAME), `${JSON.stringify(list)}\n`);
}

/** Writes samples and their list, the list last. Returns the list. */
function writeSplit(
  folder: string,
  suffix: string,
  files: readonly Uint8Array[],
  codes: Pick<WrittenList, 'tokenizer'> = {},
): WrittenList {
  mkdirSync(join(folder, 'samples'), { recursive: true });
  const paths = files.map((bytes, i) => {
    const path = `samples/${String(i).padStart(6, '0')}${suffix}`;
    writeFileSync(join(folder, path), bytes);
    return path;
  });
  const list = { path_list: paths, sha256: files.map((bytes) => sha256(bytes)), ...codes };
  writeList(folder, list);
  return list;
}

function indices(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}

/** The images that an image tokenizer is trained on. */
export const imageData = tinyDataset<TinyWorldSettings, Partial<TinyImageOptions>>({
  things: 'images',
  name: 'images',
  optionsOf: ({ seed, grid, cell, counts }) => ({
    seed,
    geometry: { columns: grid, rows: grid, cell },
    count: counts.images,
  }),
  entryOf: (options) => throughJson({ ...DEFAULT_TINY_IMAGES, ...options }),
  check: ({ geometry = DEFAULT_GEOMETRY }) => checkGeometry(geometry),
  write: async (folder, options) => {
    const { seed, count, geometry } = { ...DEFAULT_TINY_IMAGES, ...options };
    const files = indices(count).map((i) => encodePlainPng(drawScene(drawImageScene(seed, i, geometry))));
    writeSplit(join(folder, 'images', 'train'), '.png', files);
  },
});

/** The contents of each split's samples in addition to the source and the instruction. */
const SPLIT_CONTENT: Record<EditSplitName, { readonly labels: boolean; readonly targetPixels: boolean }> = {
  train: { labels: true, targetPixels: true },
  validation: { labels: true, targetPixels: true },
  prompts: { labels: false, targetPixels: false },
  truth: { labels: false, targetPixels: true },
};

async function encodeSamples(
  plans: readonly Plan[],
  split: EditSplitName,
  tokenizer: ImageTokenizerLike,
): Promise<Uint8Array[]> {
  const { labels, targetPixels } = SPLIT_CONTENT[split];
  const sources = plans.map((plan) => drawScene(plan.source));
  const targets = targetPixels ? plans.map((plan) => drawScene(plan.expected)) : [];
  const images = labels ? [...sources, ...targets] : sources;
  const grids: CodeGrid[] = [];
  for (let from = 0; from < images.length; from += ENCODE_BATCH) {
    grids.push(...(await tokenizer.encode(images.slice(from, from + ENCODE_BATCH))));
  }
  if (grids.length !== images.length) {
    throw new InternalError(`the image tokenizer gave ${grids.length} code grids for ${images.length} images`);
  }
  return plans.map((plan, i) =>
    encodeEditSample({
      instruction: instructionOf(plan.edit, plan.source.geometry),
      source: grids[i],
      sourcePng: encodePlainPng(sources[i]),
      target: labels ? grids[plans.length + i] : null,
      targetPng: targetPixels ? encodePlainPng(targets[i]) : null,
      rationale: labels ? rationaleOf(plan) : null,
    }),
  );
}

/** Both sets of edits in the codes of a tokenizer. They change with its weights. */
export const editData = (tokenizer: ImageTokenizerLike) =>
  tinyDataset<TinyWorldSettings, Partial<TinyEditOptions>>({
    things: 'edits',
    name: 'edits',
    optionsOf: ({ seed, grid, cell, counts: { train, prompts, validation, truth } }) => {
      const geometry = { columns: grid, rows: grid, cell };
      return { seed, geometry, sizes: { train, prompts, validation, truth } };
    },
    entryOf: (options) => throughJson({ ...DEFAULT_TINY_EDITS, ...options, tokenizer: tokenizer.id }),
    check: ({ geometry = DEFAULT_GEOMETRY }) => checkGeometry(geometry),
    write: async (folder, options) => {
      const { seed, sizes, geometry, mixtures } = { ...DEFAULT_TINY_EDITS, ...options };
      const codes = { tokenizer: tokenizer.id };
      for (const set of EDIT_SETS) {
        for (const split of EDIT_SPLITS) {
          const plans = indices(sizes[split]).map((i) => drawExample(seed, set, split, i, geometry, mixtures[set]));
          const samples = await encodeSamples(plans, split, tokenizer);
          const list = writeSplit(join(folder, set, split), '.npz', samples, codes);
          if (split !== 'train') continue;
          const half = <T>(all: readonly T[]): readonly T[] => all.slice(0, Math.ceil(all.length / 2));
          writeList(join(folder, set, HALF), {
            prefix: '../train',
            path_list: half(list.path_list),
            sha256: half(list.sha256),
            ...codes,
          });
        }
      }
    },
  });
