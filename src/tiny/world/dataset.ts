/**
 * The tiny world on disk, in the layout of real datasets:
 *
 *   <root>/dataset.json                                   what was made, written last
 *   <root>/images/train/list/tokenized_datalist.json      PNG files for the image tokenizer
 *   <root>/{s,c}/{train,prompts,validation,truth}/list/tokenized_datalist.json   edits as .npz
 *   <root>/{s,c}/train_half/list/tokenized_datalist.json  the first half of train, for runs that see both sets
 *
 * A part is built beside its place, renamed into it, and entered in dataset.json last; a part without an entry is made again.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { diskError, syncDirectory, writeFileAtomic } from '../../core/files.js';
import { InternalError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { DATALIST_NAME } from '../../data/datalist.js';
import { encodeEditSample } from '../../data/npz.js';
import type { CodeGrid } from '../../data/types.js';
import { drawScene } from './draw.js';
import { instructionOf, rationaleOf, type Plan } from './edits.js';
import {
  drawExample,
  drawImageScene,
  EDIT_MIXTURES,
  EDIT_SETS,
  type EditMixture,
  type EditSetName,
} from './generate.js';
import { encodePlainPng } from '../../core/png.js';
import { EDIT_SPLITS, type EditSplitName } from './splits.js';
import { checkGeometry, DEFAULT_GEOMETRY, type Geometry } from './world.js';

/** What turns pixels into vision codes; an image tokenizer that was trained on this world's images. */
export interface ImageTokenizerLike {
  /** Changes whenever the codes would: a hash of the weights, say. */
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

/** Images that are encoded to codes at once. */
const ENCODE_BATCH = 256;
/** Goes up when the same options would give other files. */
const FORMAT = 2;

const recordSchema = z.object({ format: z.literal(FORMAT), images: z.unknown(), edits: z.unknown() });
type DatasetRecord = z.infer<typeof recordSchema>;
type PartName = 'images' | 'edits';

const PART_FOLDERS: Record<PartName, readonly string[]> = { images: ['images'], edits: EDIT_SETS };

function recordPath(root: string): string {
  return join(root, 'dataset.json');
}

/** What is finished under a root; an unreadable record counts as none, so that the parts are made again. */
function readRecord(root: string): DatasetRecord {
  const none: DatasetRecord = { format: FORMAT, images: null, edits: null };
  if (!existsSync(recordPath(root))) return none;
  try {
    const parsed = recordSchema.safeParse(JSON.parse(readFileSync(recordPath(root), 'utf8')));
    return parsed.success ? parsed.data : none;
  } catch (cause) {
    if (cause instanceof SyntaxError) return none;
    throw diskError(recordPath(root), cause);
  }
}

function writeRecord(root: string, record: DatasetRecord): void {
  writeFileAtomic(recordPath(root), `${JSON.stringify(record, null, 2)}\n`);
}

/** What a finished part is recognised by, as it reads back from JSON. */
function entryOf(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

function isFinished(root: string, part: PartName, entry: unknown): boolean {
  const there = PART_FOLDERS[part].every((folder) => existsSync(join(root, folder)));
  return there && isDeepStrictEqual(readRecord(root)[part], entry);
}

/** Whether images with these options are there already. */
export function hasTinyImages(root: string, options: Partial<TinyImageOptions> = {}): boolean {
  return isFinished(root, 'images', entryOf({ ...DEFAULT_TINY_IMAGES, ...options }));
}

/** Whether edits with these options, in this tokenizer's codes, are there already. */
export function hasTinyEdits(root: string, options: Partial<TinyEditOptions>, tokenizerId: string): boolean {
  return isFinished(root, 'edits', entryOf({ ...DEFAULT_TINY_EDITS, ...options, tokenizer: tokenizerId }));
}

/** Lists the first half of a set's labelled split, so that two sets together have as many labels as one. */
const HALF = 'train_half';

/** The list of a set's split; what a config names as a dataset's path. */
export function tinyDatalist(root: string, set: EditSetName | 'images', split: EditSplitName | typeof HALF): string {
  return join(root, set, split, 'list', DATALIST_NAME);
}

const STAGING = '.making-';

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Removes what killed processes left half made. */
function sweepStaging(root: string): void {
  for (const name of readdirSync(root)) {
    if (!name.startsWith(STAGING)) continue;
    const pid = Number(name.slice(STAGING.length).split('-')[0]);
    if (!Number.isInteger(pid) || pid === process.pid || !isAlive(pid)) {
      rmSync(join(root, name), { recursive: true, force: true });
    }
  }
}

/** Builds a part beside its place and publishes it; returns at once when it is there. */
async function makePart(
  root: string,
  part: PartName,
  entry: unknown,
  build: (folder: string) => Promise<void>,
): Promise<void> {
  if (isFinished(root, part, entry)) return;
  const staging = join(root, `${STAGING}${process.pid}-${part}`);
  try {
    mkdirSync(root, { recursive: true });
    sweepStaging(root);
    mkdirSync(staging);
    await build(staging);
    // Another process may have published the same part meanwhile: its files are the same, and are perhaps being read.
    if (isFinished(root, part, entry)) return;
    writeRecord(root, { ...readRecord(root), [part]: null });
    for (const folder of PART_FOLDERS[part]) {
      const target = join(root, folder);
      if (existsSync(target)) renameSync(target, join(staging, `old-${folder}`));
      renameSync(join(staging, folder), target);
    }
    syncDirectory(root);
    writeRecord(root, { ...readRecord(root), [part]: entry });
  } catch (cause) {
    if (cause instanceof Error && 'syscall' in cause) throw diskError(root, cause);
    throw cause;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

function writeList(folder: string, list: { readonly prefix?: string; readonly path_list: readonly string[] }): void {
  mkdirSync(join(folder, 'list'), { recursive: true });
  writeFileAtomic(join(folder, 'list', DATALIST_NAME), `${JSON.stringify(list)}\n`);
}

/** Writes samples and their list, the list last; returns the paths that it lists. */
function writeSplit(folder: string, suffix: string, files: readonly Uint8Array[]): readonly string[] {
  mkdirSync(join(folder, 'samples'), { recursive: true });
  const paths = files.map((bytes, i) => {
    const path = `samples/${String(i).padStart(6, '0')}${suffix}`;
    writeFileSync(join(folder, path), bytes);
    return path;
  });
  writeList(folder, { path_list: paths });
  return paths;
}

function indices(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}

/**
 * Makes the images that an image tokenizer is trained on; does nothing where they are there already.
 * Raises RunError when the disk refuses.
 */
export async function makeTinyImages(root: string, options: Partial<TinyImageOptions> = {}): Promise<void> {
  const full = { ...DEFAULT_TINY_IMAGES, ...options };
  checkGeometry(full.geometry);
  await makePart(root, 'images', entryOf(full), async (folder) => {
    const files = indices(full.count).map((i) =>
      encodePlainPng(drawScene(drawImageScene(full.seed, i, full.geometry))),
    );
    writeSplit(join(folder, 'images', 'train'), '.png', files);
  });
}

/** What each split's samples tell beside the source and the instruction. */
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

/**
 * Makes both sets of edits in a tokenizer's codes; does nothing where they are there already with the same options and tokenizer.
 * Raises RunError when the disk refuses.
 */
export async function makeTinyEdits(
  root: string,
  options: Partial<TinyEditOptions>,
  tokenizer: ImageTokenizerLike,
): Promise<void> {
  const full = { ...DEFAULT_TINY_EDITS, ...options };
  checkGeometry(full.geometry);
  await makePart(root, 'edits', entryOf({ ...full, tokenizer: tokenizer.id }), async (folder) => {
    for (const set of EDIT_SETS) {
      for (const split of EDIT_SPLITS) {
        const plans = indices(full.sizes[split]).map((i) =>
          drawExample(full.seed, set, split, i, full.geometry, full.mixtures[set]),
        );
        const paths = writeSplit(join(folder, set, split), '.npz', await encodeSamples(plans, split, tokenizer));
        if (split !== 'train') continue;
        const half = paths.slice(0, Math.ceil(paths.length / 2));
        writeList(join(folder, set, HALF), { prefix: '../train', path_list: half });
      }
    }
  });
}
