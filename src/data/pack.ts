/**
 * Makes datasets of the user's own images:
 *
 *   <out>/dataset.json                               its sources, written last
 *   <out>/<split>/list/tokenized_datalist.json       the samples of a split
 *   <out>/<split>/samples/000000.png                 without codes: each image once, for training an image tokenizer
 *   <out>/<split>/samples/000000.npz                 in an image tokenizer's codes: edits
 *   <out>/tokenizer.json                             for edits: the vocabulary of all instructions and of the codes
 *
 * The folder appears once it is complete and never changes afterwards, because runs read it.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import { DataError } from '../core/errors.js';
import { diskError, stagingFolder, sweepStaging, syncDirectory, writeFileAtomic } from '../core/files.js';
import { encodePng, sha256, type RgbImage } from '../core/images/image.js';
import { DATALIST_NAME } from './datalist.js';
import { readInstructions, type EditLine } from './instructions.js';
import { encodeEditSample } from './npz.js';
import {
  imageBytes,
  readFitted,
  sameShape,
  sameSize,
  sizeText,
  type FittedImage,
  type ImageSize,
} from './image_files.js';
import type { CodeGrid } from './types.js';

/** The parts of an image tokenizer that packing needs. */
export interface ImageCodes {
  /** Changes whenever codes would mean something else. */
  readonly id: string;
  /** Side of the square of pixels of one code. */
  readonly patch: number;
  /** The default rule for the size of images. Null: they keep their size. */
  readonly sizing: { readonly rules: object; fit(image: RgbImage, where: string): RgbImage } | null;
  encode(images: readonly RgbImage[]): Promise<CodeGrid[]>;
  /** The `tokenizer.json` of a vocabulary of these words and the codes. */
  vocabulary(words: readonly string[]): string;
}

export interface PackRequest {
  /** The file of JSON lines. Image paths are relative to its folder. */
  readonly instructions: string;
  readonly out: string;
  /** Images are scaled and cropped to this size. Null keeps each image's size, or the size of its `codes`. */
  readonly size: ImageSize | null;
  /** Null for datasets of only images. */
  readonly codes: ImageCodes | null;
  /** Called with how many of all lines are done. */
  readonly onProgress?: (done: number, total: number) => void;
}

export interface PackedSplit {
  readonly split: string;
  readonly list: string;
  readonly samples: number;
  /** Edits with an edited image. 0 for datasets of only images. */
  readonly labelled: number;
}

export interface PackReport {
  readonly out: string;
  readonly kind: 'edits' | 'images';
  readonly splits: readonly PackedSplit[];
  /** Number of distinct words in instructions and rationales. Null for datasets of only images. */
  readonly words: number | null;
  /** Whether the same dataset already existed. */
  readonly was_there: boolean;
}

const TOKENIZER_NAME = 'tokenizer.json';
const RECORD_NAME = 'dataset.json';
/** Raise this when the same input would produce other files. */
const FORMAT = 1;
/** Lines whose images are held and encoded at once: decoding a photograph of 12 million pixels takes 36 MB. */
const BATCH = 8;

const recordSchema = z.object({
  format: z.literal(FORMAT),
  made_from: z.string(),
  report: z.object({
    kind: z.enum(['edits', 'images']),
    splits: z.array(z.object({ split: z.string(), samples: z.int(), labelled: z.int() })),
    words: z.int().nullable(),
  }),
});
type PackRecord = z.output<typeof recordSchema>;

/**
 * Packs a file of edits. The same input again finds the existing dataset. Raises DataError, naming file and line, for
 * problems of the input or if another dataset is in the way, RunError if the disk fails.
 */
export async function packDataset(request: PackRequest): Promise<PackReport> {
  const lines = readInstructions(request.instructions);
  const out = resolve(request.out);
  const made_from = digestOf(request, lines);
  if (existsSync(out) && !isEmptyFolder(out)) return reportOf(request.out, requireSame(request.out, made_from), true);
  const staging = stagingFolder(dirname(out), stagingPrefix(out));
  try {
    sweepStaging(dirname(out), stagingPrefix(out));
    mkdirSync(staging, { recursive: true });
    const report = await (request.codes === null
      ? writeImages(request, lines, staging)
      : writeEdits(request, request.codes, lines, staging));
    const record: PackRecord = { format: FORMAT, made_from, report };
    writeFileAtomic(
      join(staging, RECORD_NAME),
      `${JSON.stringify({ ...record, tokenizer: request.codes?.id ?? null, size: request.size }, null, 2)}\n`,
    );
    renameSync(staging, out);
    syncDirectory(dirname(out));
    return reportOf(request.out, record, false);
  } catch (cause) {
    throw cause instanceof Error && 'syscall' in cause ? diskError(out, cause) : cause;
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Whether a path is an empty folder. Renaming a folder to it replaces it. */
function isEmptyFolder(path: string): boolean {
  return statSync(path).isDirectory() && readdirSync(path).length === 0;
}

/** Everything that determines the output. */
function digestOf({ size, codes }: PackRequest, lines: readonly EditLine[]): string {
  const images = new Map<string, string>();
  const imageDigest = (path: string | null, where: string): string | null => {
    if (path === null) return null;
    const known = images.get(path) ?? sha256(imageBytes(path, where));
    images.set(path, known);
    return known;
  };
  const sizing = size === null ? (codes?.sizing ?? null) : null;
  const made = { FORMAT, size, tokenizer: codes?.id ?? null, ...(sizing === null ? {} : { sizing: sizing.rules }) };
  const hash = createHash('sha256').update(JSON.stringify(made));
  for (const { source, edited, instruction, rationale, split, where } of lines) {
    const line = [imageDigest(source, where), imageDigest(edited, where), instruction, rationale, split];
    hash.update(`${JSON.stringify(line)}\n`);
  }
  return hash.digest('hex');
}

function requireSame(out: string, madeFrom: string): PackRecord {
  const path = join(out, RECORD_NAME);
  const next = 'Name another folder with --out; an existing dataset is not changed, because runs may read it.';
  let found: unknown = null;
  try {
    if (existsSync(path)) found = JSON.parse(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw new DataError('the record of the dataset that is there cannot be read', { where: path, next, cause });
  }
  const parsed = recordSchema.safeParse(found);
  if (parsed.success && parsed.data.made_from === madeFrom) return parsed.data;
  const what = parsed.success
    ? 'the folder has a dataset of other images, instructions, size or codes'
    : 'there is something else here';
  throw new DataError(what, { where: out, next });
}

function reportOf(out: string, { report }: PackRecord, was_there: boolean): PackReport {
  const splits = report.splits.map((split) => ({ ...split, list: join(out, split.split, 'list', DATALIST_NAME) }));
  return { out, ...report, splits, was_there };
}

function stagingPrefix(out: string): string {
  return `.${basename(out)}.making-`;
}

/** Samples of each split, named in their order, and their lists. */
class Splits {
  readonly #found = new Map<string, { paths: string[]; digests: string[]; labelled: number }>();

  constructor(
    private readonly folder: string,
    /** The id of the image tokenizer of the codes. Null for datasets of only images. */
    private readonly tokenizer: string | null,
  ) {}

  add(split: string, suffix: string, bytes: Uint8Array, labeled: boolean): void {
    let found = this.#found.get(split);
    if (found === undefined) {
      this.#found.set(split, (found = { paths: [], digests: [], labelled: 0 }));
      mkdirSync(join(this.folder, split, 'samples'), { recursive: true });
    }
    const path = `samples/${String(found.paths.length).padStart(6, '0')}${suffix}`;
    writeFileSync(join(this.folder, split, path), bytes);
    found.paths.push(path);
    found.digests.push(sha256(bytes));
    if (labeled) found.labelled++;
  }

  finish(): PackRecord['report']['splits'] {
    return [...this.#found].map(([split, { paths, digests, labelled }]) => {
      writeFileAtomic(
        join(this.folder, split, 'list', DATALIST_NAME),
        `${JSON.stringify({ ...(this.tokenizer === null ? {} : { tokenizer: this.tokenizer }), path_list: paths, sha256: digests })}\n`,
      );
      return { split, samples: paths.length, labelled };
    });
  }
}

/** Writes each image of a split once, whether it is a source or an edited image. */
async function writeImages(
  { size, onProgress }: PackRequest,
  lines: readonly EditLine[],
  folder: string,
): Promise<PackRecord['report']> {
  const splits = new Splits(folder, null);
  const seen = new Set<string>();
  for (const [index, { where, source, edited, split }] of lines.entries()) {
    for (const path of edited === null ? [source] : [source, edited]) {
      const place = JSON.stringify([split, path]);
      if (seen.has(place)) continue;
      seen.add(place);
      const { image } = await readFitted(path, where, size);
      splits.add(split, '.png', await encodePng(image), false);
    }
    onProgress?.(index + 1, lines.length);
  }
  return { kind: 'images', splits: splits.finish(), words: null };
}

async function writeEdits(
  { size, onProgress }: PackRequest,
  codes: ImageCodes,
  lines: readonly EditLine[],
  folder: string,
): Promise<PackRecord['report']> {
  const splits = new Splits(folder, codes.id);
  for (let from = 0; from < lines.length; from += BATCH) {
    const batch = lines.slice(from, from + BATCH);
    const images = await Promise.all(batch.map((line) => readImages(line, size, codes)));
    const grids = await codes.encode(
      images.flatMap(({ source, edited }) => (edited === null ? [source] : [source, edited])),
    );
    let at = 0;
    for (const [i, line] of batch.entries()) {
      const { source, edited } = images[i];
      const bytes = encodeEditSample({
        instruction: line.instruction,
        source: grids[at++],
        sourcePng: await encodePng(source),
        target: edited === null ? null : grids[at++],
        targetPng: edited === null ? null : await encodePng(edited),
        rationale: line.rationale,
      });
      splits.add(line.split, '.npz', bytes, edited !== null);
    }
    onProgress?.(from + batch.length, lines.length);
  }
  const words = wordsOf(lines);
  writeFileAtomic(join(folder, TOKENIZER_NAME), codes.vocabulary(words));
  return { kind: 'edits', splits: splits.finish(), words: words.length };
}

/** All words of all splits, sorted: the vocabulary does not depend on the order of the lines. */
function wordsOf(lines: readonly EditLine[]): string[] {
  const texts = lines.flatMap(({ instruction, rationale }) => [instruction, rationale ?? '']);
  return [...new Set(texts.flatMap((each) => each.split(/\s+/)))].filter((word) => word !== '').sort();
}

/** The images of an edit, fitted to one size. */
interface EditImages {
  readonly source: RgbImage;
  readonly edited: RgbImage | null;
}

async function readImages(line: EditLine, size: ImageSize | null, { patch, sizing }: ImageCodes): Promise<EditImages> {
  const { where } = line;
  const read = async (path: string): Promise<FittedImage> => {
    const found = await readFitted(path, where, size);
    return size === null && sizing !== null ? { ...found, image: sizing.fit(found.image, where) } : found;
  };
  const source = await read(line.source);
  const { width, height } = source.image;
  if (width % patch !== 0 || height % patch !== 0) {
    throw new DataError(
      `the images have ${sizeText(source.image)} pixels, which are not multiples of the image tokenizer's squares of ${patch}`,
      { where, next: `Give --size with sides that are multiples of ${patch}.` },
    );
  }
  if (line.edited === null) return { source: source.image, edited: null };
  const edited = await read(line.edited);
  if (size === null ? sameSize(source.original, edited.original) : sameShape(source.original, edited.original)) {
    return { source: source.image, edited: edited.image };
  }
  const wanted =
    size === null ? 'the same size; --size gives all images one size' : 'the same shape, to be cropped alike';
  const found = `the source has ${sizeText(source.original)} pixels, the edited image ${sizeText(edited.original)}`;
  throw new DataError(`${found}; allowed: ${wanted}`, { where });
}
