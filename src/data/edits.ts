/**
 * Datasets of edits and of plain images in EARL's lists. A table by file suffix determines how an edit is read: as .npz, or as EARL stores it by torch.save, with
 * `instruction`, the codes of `original_image` and `edited_image` [height, width], and in `CoT` texts to reason with, by their names.
 */
import { extname } from 'node:path';
import { DataError } from '../core/errors.js';
import { type RgbImage, decodeImage, sha256 } from '../core/images/image.js';
import { openDatalist, readListedFile } from './datalist.js';
import { decodeEditSample } from './npz.js';
import { type ComparedSample, pixelDigest } from './overlap.js';
import { type Dtype, SavedArray, readTorchFile } from './torch_file.js';
import type { CodeGrid, EditSample, SampleSource } from './types.js';

type SampleReader = (bytes: Uint8Array, id: string, where: string) => EditSample;

/** How a file of each kind becomes a sample. */
const READERS: Readonly<Record<string, SampleReader>> = {
  '.npz': decodeEditSample,
  '.pt': decodeTorchSample,
  '.pth': decodeTorchSample,
};

/** Opens a dataset of edits: the path of its list or of the folder around it. Raises DataError. */
export function openEditDataset(path: string): SampleSource<EditSample> {
  const list = openDatalist(path);
  return {
    name: path,
    length: list.ids.length,
    remark: list.remark,
    digest: list.digest,
    tokenizer: list.tokenizer,
    read(index) {
      const { path: file, bytes } = readListedFile(list, index);
      const reader = READERS[extname(file)] as SampleReader | undefined;
      if (reader === undefined) {
        throw new DataError(`samples of kind '${extname(file)}' cannot be read`, {
          where: file,
          next: `Convert them to one of: ${Object.keys(READERS).join(', ')}.`,
        });
      }
      return reader(bytes, list.ids[index], file);
    },
  };
}

/**
 * An edit for the comparison with others. The image is compared by its pixels, or by its codes if it only has codes.
 */
export function comparedEdit(source: SampleSource<EditSample>, index: number): ComparedSample {
  const { id, instruction, sourcePng, source: grid } = source.read(index);
  const image = async (): Promise<string> =>
    sourcePng === null ? sha256(`${grid.height}x${grid.width} ${grid.codes.join(' ')}`) : pixelDigest(sourcePng, id);
  return { id, words: instruction, image };
}

/** EARL's training cuts a policy's thoughts to this number of characters. */
const MAX_THOUGHT = 1750;
const INTEGERS: ReadonlySet<Dtype> = new Set([
  'uint8',
  'int8',
  'int16',
  'uint16',
  'int32',
  'uint32',
  'int64',
  'uint64',
]);
const MAX_CODE = 2 ** 31;

/** A sample from the bytes of its file. Raises DataError naming `where` and the field that is missing or wrong. */
export function decodeTorchSample(bytes: Uint8Array, id: string, where: string): EditSample {
  const fields = readTorchFile(bytes, where);
  if (!(fields instanceof Map)) throw wrong('the sample', fields, 'a dictionary', where);
  const field = (name: string): unknown => (fields as ReadonlyMap<unknown, unknown>).get(name);
  const instruction = field('instruction');
  if (typeof instruction !== 'string') throw wrong("the field 'instruction'", instruction, 'a text', where);
  return {
    id,
    instruction,
    source: gridOf('original_image', field('original_image'), where),
    sourcePng: null,
    target: (field('edited_image') ?? null) === null ? null : gridOf('edited_image', field('edited_image'), where),
    targetPng: null,
    rationale: rationaleOf(field('CoT') ?? null, where),
  };
}

function gridOf(name: string, value: unknown, where: string): CodeGrid {
  const what = `the field '${name}'`;
  const isGrid = value instanceof SavedArray && value.shape.length === 2 && value.values.length > 0;
  if (!isGrid || !INTEGERS.has(value.dtype)) throw wrong(what, value, 'whole numbers [height, width]', where);
  const { shape, values } = value;
  if (values.some((code) => code < 0 || code >= MAX_CODE)) throw wrong(what, value, 'codes of 0 and above', where);
  return { height: shape[0], width: shape[1], codes: Int32Array.from(values) };
}

/** Joins rationales like EARL's training: each name, followed by its text. */
function rationaleOf(value: unknown, where: string): string | null {
  if (value === null || value === '') return null;
  const texts = value instanceof Map ? [...(value as ReadonlyMap<unknown, unknown>)] : null;
  if (texts === null || texts.some((pair) => pair.some((one) => typeof one !== 'string'))) {
    throw wrong("the field 'CoT'", value, 'texts by their names', where);
  }
  if (texts.length === 0) return null;
  const joined = texts.map(([name, text]) => `${name as string}: ${(text as string).trim()}`).join(' ');
  return [...joined].slice(0, MAX_THOUGHT).join('');
}

function wrong(what: string, value: unknown, allowed: string, where: string): DataError {
  return new DataError(`${what} ${found(value)}; allowed: ${allowed}`, {
    where,
    next: 'A sample has the fields instruction, original_image and, if labeled, edited_image and CoT, as EARL saves them.',
  });
}

function found(value: unknown): string {
  if (value === undefined) return 'is missing';
  if (value instanceof SavedArray) return `is ${value.dtype} [${value.shape.join(', ')}]`;
  if (value === null) return 'is empty';
  return Array.isArray(value) ? 'is a list' : value instanceof Map ? 'is a dictionary' : `is a ${typeof value}`;
}

/** One image file. */
export interface ImageSample {
  /** Its path relative to the dataset. */
  readonly id: string;
  /** Its local path. */
  readonly path: string;
  /** The file's bytes (PNG, JPEG or WebP). */
  readonly bytes: Uint8Array;
}

/** Opens a dataset of images: the path of its list or of the folder around it. Raises DataError. */
export function openImageDataset(path: string): SampleSource<ImageSample> {
  const list = openDatalist(path);
  return {
    name: path,
    length: list.ids.length,
    remark: list.remark,
    digest: list.digest,
    read(index) {
      return { id: list.ids[index], ...readListedFile(list, index) };
    },
  };
}

/** Decodes some images of a dataset to pixels, in the order of the indices. Raises DataError naming the file. */
export async function readImages(source: SampleSource<ImageSample>, indices: readonly number[]): Promise<RgbImage[]> {
  return Promise.all(
    indices.map((index) => {
      const sample = source.read(index);
      return decodeImage(sample.bytes, sample.path);
    }),
  );
}
