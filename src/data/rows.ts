/**
 * Datasets of rows: JSON lines, the parquet files of Hugging Face's datasets, or texts with a prompt on each line. They
 * are read whole: prompts are small compared to a model.
 */
import { closeSync, existsSync, openSync, readSync, readdirSync, statSync } from 'node:fs';
import { basename, extname, join, resolve } from 'node:path';
import { DataError } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { MEBIBYTE } from '../core/plain_file.js';
import { inBrief, textOf } from '../core/text.js';
import { DATALIST_NAME, type ListDigest, missingFileAdvice, openDatalist } from './datalist.js';
import { jsonLine, linesOf, readWhole } from './large_texts.js';
import { parquetColumns, readParquetRows } from './parquet_rows.js';
import type { Row } from './types.js';

export type { Row };

export interface RowSource {
  /** The path as given. */
  readonly name: string;
  readonly length: number;
  readonly remark: null;
  /** Changes with the content of the rows, not with their location. */
  readonly digest: ListDigest;
  read(index: number): Row;
  /** Names a row independently of the machine: its file and its number in it, from 1. */
  id(index: number): string;
  /** The location of a row, for messages. */
  place(index: number): string;
}

interface Numbered {
  readonly row: Row;
  readonly file: string;
  /** From 1: the line, or the row of a parquet file. */
  readonly number: number;
}

/** Anything that is not a row is added to `problems`. */
type Reader = (
  bytes: Uint8Array,
  path: string,
  problems: DataError[],
) => readonly Numbered[] | Promise<readonly Numbered[]>;

/** How a file of each kind becomes rows. */
const READERS: Readonly<Record<string, Reader>> = { '.jsonl': readLines, '.parquet': readParquet, '.txt': readPrompts };
const KINDS = Object.keys(READERS).join(', ');
/** The kinds that are read from a folder. A .txt file in a folder is skipped, because it may contain notes. */
const FOLDER_KINDS = Object.keys(READERS).filter((kind) => kind !== '.txt');

/** The files of a dataset: the path itself, or the files in its folder, by name. Raises DataError without any. */
export function rowFiles(path: string): readonly string[] {
  const absolute = resolve(path);
  if (!existsSync(absolute)) {
    throw new DataError('there is no such dataset', { where: absolute, next: missingFileAdvice(absolute) });
  }
  if (!statSync(absolute).isDirectory()) {
    if (extname(absolute) in READERS) return [absolute];
    throw new DataError(
      `found a file of kind '${extname(absolute)}'; allowed: ${KINDS}, or a folder of ${FOLDER_KINDS.join(', ')}`,
      {
        where: absolute,
      },
    );
  }
  const names = readdirSync(absolute)
    .filter((name) => FOLDER_KINDS.includes(extname(name)))
    .sort();
  requireOneSplit(names, absolute);
  if (names.length > 0) return names.map((name) => join(absolute, name));
  throw new DataError(`the folder has no dataset; allowed: files of kind ${FOLDER_KINDS.join(', ')}`, {
    where: absolute,
  });
}

/** The names of a split's files in a Hub repository, which has all splits in one folder. */
const SPLITS = {
  train: /(?:^|[-_.])train(?:ing)?(?:[-_.]|$)/i,
  validation: /(?:^|[-_.])(?:validation|valid|val|dev)(?:[-_.]|$)/i,
  test: /(?:^|[-_.])(?:test|testing|eval|evaluation)(?:[-_.]|$)/i,
};

/**
 * Raises DataError for a folder with several splits: training would include held-out samples. A name with two splits
 * counts for neither.
 */
function requireOneSplit(names: readonly string[], folder: string): void {
  const found = new Map<string, string>();
  for (const name of names) {
    const [split, another] = Object.entries(SPLITS).flatMap(([split, says]) => (says.test(name) ? [split] : []));
    if (split !== undefined && another === undefined && !found.has(split)) found.set(split, name);
  }
  if (found.size < 2) return;
  const splits = [...found].map(([split, name]) => `${split} (${name})`).sort();
  throw new DataError(`the folder has several splits: ${splits.join(', ')}`, {
    where: folder,
    next: 'Name the files of one split, each as a separate dataset, or move them to a folder of their own.',
  });
}

/**
 * Checks the kind and the columns of a dataset's first file without reading it. Raises the DataErrors of `openRows`, and for
 * a missing column.
 */
export function checkRows(path: string, columns: readonly string[]): void {
  const lacks = missingColumn(path, columns);
  if (lacks === null) return;
  throw new DataError(`the dataset has no column '${lacks.missing}'${lacks.found}`, {
    where: lacks.file,
    next: COLUMNS_ADVICE,
  });
}

/**
 * The first missing column of a dataset's first file, and the existing ones. Null if it has all. Raises the errors of `checkRows`.
 */
export function missingColumn(
  path: string,
  columns: readonly string[],
): { readonly missing: string; readonly found: string; readonly file: string } | null {
  const [file] = rowFiles(path);
  const { missing, found } = GLANCES[extname(file)](file, columns);
  return missing === undefined ? null : { missing, found, file };
}

export const COLUMNS_ADVICE =
  'Name the columns of the dataset in data.columns, or write the prompt by prompt.template.';

interface Glance {
  readonly missing: string | undefined;
  /** The existing columns, for the message. */
  readonly found: string;
}

const GLANCES: Readonly<Record<string, (file: string, columns: readonly string[]) => Glance>> = {
  '.jsonl': (file, columns) => {
    const problems: DataError[] = [];
    const [first] = readLines(firstLines(file, 1), file, problems);
    if (problems.length > 0) throw problems[0];
    return first === undefined ? { missing: undefined, found: '' } : glance(first.row, columns);
  },
  '.parquet': (file, columns) => glance(parquetColumns(file), columns),
  '.txt': (_file, columns) => ({
    missing: columns.find((column) => column !== PROMPT_COLUMN),
    found: `; a text has one column, '${PROMPT_COLUMN}'`,
  }),
};

function glance(row: Row, columns: readonly string[]): Glance {
  const missing = columns.find((column) => valueAt(row, column) === undefined);
  return { missing, found: `; found: ${columnNames(row).join(', ')}` };
}

/** The value of a column. `a.b` is field `b` of column `a`, unless a column has that name. Undefined if the row has no such column. */
export function valueAt(row: Row, column: string): unknown {
  if (Object.hasOwn(row, column)) return row[column];
  for (let dot = column.indexOf('.'); dot >= 0; dot = column.indexOf('.', dot + 1)) {
    const outer = Object.hasOwn(row, column.slice(0, dot)) ? row[column.slice(0, dot)] : undefined;
    if (outer === null) return null;
    const found = isFields(outer) ? valueAt(outer, column.slice(dot + 1)) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The names by which `valueAt` finds the values of a row. */
export function columnNames(row: Row): readonly string[] {
  return Object.entries(row).flatMap(([name, value]) =>
    isFields(value) ? columnNames(value).map((inner) => `${name}.${inner}`) : [name],
  );
}

function isFields(value: unknown): value is Row {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** The first rows of a dataset. The rest is not read. Raises the DataErrors of `openRows`, for lines that are not rows. */
export async function firstRows(
  path: string,
  count: number,
): Promise<readonly { readonly row: Row; readonly place: string }[]> {
  const rows: { readonly row: Row; readonly place: string }[] = [];
  for (const file of rowFiles(path)) {
    const problems: DataError[] = [];
    const left = count - rows.length;
    for (const { row, number } of (await FIRST[extname(file)](file, left, problems)).slice(0, left)) {
      rows.push({ row, place: `${file}:${number}` });
    }
    if (problems.length > 0) throw problems[0];
    if (rows.length === count) break;
  }
  return rows;
}

const FIRST: Readonly<Record<string, (file: string, count: number, problems: DataError[]) => ReturnType<Reader>>> = {
  '.jsonl': (file, count, problems) => readLines(firstLines(file, count), file, problems),
  '.parquet': (file, count, problems) => readParquet(readWhole(file), file, problems, count),
  '.txt': (file) => readPrompts(readWhole(file), file),
};

/** Read at a time, of a file whose lines end somewhere. */
const PIECE_BYTES = 1 << 16;

/** The bytes of a file up to the end of its first lines that are not blank. All bytes if there are fewer lines. */
function firstLines(path: string, count: number): Uint8Array {
  const file = openSync(path, 'r');
  try {
    let text: Buffer = Buffer.alloc(0);
    let [at, left] = [0, count];
    for (;;) {
      const piece = Buffer.alloc(PIECE_BYTES);
      const read = readSync(file, piece);
      text = Buffer.concat([text, piece.subarray(0, read)]);
      for (;;) {
        const start = text.subarray(at).findIndex((byte) => byte > 0x20);
        const end = start < 0 ? -1 : text.indexOf(0x0a, at + start);
        if (end < 0) break;
        at = end + 1;
        left -= 1;
        if (left <= 0) return text.subarray(0, end);
      }
      if (read === 0) return text;
    }
  } finally {
    closeSync(file);
  }
}

/** Raises the DataErrors of `readRows`, and the first error of a line. */
export async function openRows(path: string): Promise<RowSource> {
  const { problems, ...source } = await readRows(path);
  if (problems.length > 0) throw problems[0];
  return source;
}

/**
 * The rows of a dataset, and an error naming file and line for each line that is not a row. Raises DataError for files
 * that cannot be read.
 */
export async function readRows(path: string): Promise<RowSource & { readonly problems: readonly DataError[] }> {
  const rows: Numbered[] = [];
  const problems: DataError[] = [];
  const digests: string[] = [];
  for (const file of rowFiles(path)) {
    const bytes = readWhole(file);
    digests.push(sha256(bytes));
    // One by one: a call takes at most about 100,000 arguments.
    for (const row of await READERS[extname(file)](bytes, file, problems)) rows.push(row);
  }
  if (rows.length === 0 && problems.length === 0) {
    throw new DataError('the dataset is empty', { where: path, next: 'Remove it from the config.' });
  }
  const files = sha256(digests.join(' '));
  return {
    name: path,
    length: rows.length,
    remark: null,
    digest: { ids: files, files },
    read: (index) => rows[index].row,
    id: (index) => `${basename(rows[index].file)}:${rows[index].number}`,
    place: (index) => `${rows[index].file}:${rows[index].number}`,
    problems,
  };
}

/** A file with this number of invalid lines is of another kind, and is not read further. */
const MAX_BROKEN = 100;

function readLines(bytes: Uint8Array, file: string, problems: DataError[]): Numbered[] {
  const rows: Numbered[] = [];
  const before = problems.length;
  let number = 0;
  for (const line of linesOf(bytes)) {
    if (problems.length - before === MAX_BROKEN) {
      const found = `${MAX_BROKEN} lines are not rows; the lines after line ${number} were not checked`;
      problems.push(new DataError(found, { where: file, next: 'Name a file with a JSON object on each line.' }));
      break;
    }
    number += 1;
    try {
      const row = jsonLine(line, file, number);
      if (row === undefined) continue;
      if (isFields(row)) rows.push({ row, file, number });
      else {
        const where = `${file}:${number}`;
        problems.push(new DataError('found a line that is not an object; allowed: {"prompt": …, …}', { where }));
      }
    } catch (cause) {
      if (!(cause instanceof DataError)) throw cause;
      problems.push(cause);
    }
  }
  return rows;
}

/** The column of a text whose lines are prompts. */
const PROMPT_COLUMN = 'prompt';

/**
 * A prompt on each line, with its number from 1, without blank lines and those that begin with #. Raises DataError as
 * `textOf`.
 */
export function promptLines(
  bytes: Uint8Array,
  file: string,
): readonly { readonly prompt: string; readonly number: number }[] {
  return textOf(bytes, file)
    .split('\n')
    .map((line, i) => ({ prompt: line.trim(), number: i + 1 }))
    .filter(({ prompt }) => prompt !== '' && !prompt.startsWith('#'));
}

function readPrompts(bytes: Uint8Array, file: string): Numbered[] {
  return promptLines(bytes, file).map(({ prompt, number }) => ({ row: { [PROMPT_COLUMN]: prompt }, file, number }));
}

async function readParquet(bytes: Uint8Array, file: string, problems: DataError[], most?: number): Promise<Numbered[]> {
  const found = await readParquetRows(bytes, file, most);
  return found.flatMap((row, i): Numbered[] => {
    if (!(row instanceof DataError)) return [{ row, file, number: i + 1 }];
    problems.push(row);
    return [];
  });
}

/** Larger files are not counted, because a forecast is made for every run of an experiment. */
const MAX_COUNTED_BYTES = 4 * MEBIBYTE;

/**
 * The number of samples in a dataset, or `most` if it has more. An upper bound: broken rows count. Null if unknown: for
 * a dataset that is missing, in parquet or larger than 4 MiB.
 */
export function countRows(path: string, most: number): number | null {
  const list = existsSync(path) && statSync(path).isDirectory() ? join(path, 'list', DATALIST_NAME) : path;
  try {
    const isList = existsSync(list) && extname(list) === '.json';
    const files = isList ? [list] : rowFiles(path);
    if (files.some((file) => extname(file) === '.parquet' || statSync(file).size > MAX_COUNTED_BYTES)) return null;
    if (isList) return Math.min(most, openDatalist(list).ids.length);
    // Only prompts may have comments.
    const rows = files.flatMap((file): readonly unknown[] =>
      extname(file) === '.txt'
        ? promptLines(readWhole(file), file)
        : [...linesOf(readWhole(file))].filter((line) => line.some((byte) => byte > 0x20)),
    );
    return Math.min(most, rows.length);
  } catch (error) {
    // Opening the dataset reports the problem.
    if (error instanceof DataError) return null;
    throw error;
  }
}

/**
 * Columns of datasets about images, with the names in ms-swift, verl, LLaVA, VLM-R1 and Hugging Face's image folders.
 */
const COLUMNS: ReadonlySet<string> = new Set(['image', 'images', 'video', 'videos', 'audio', 'audios']);

/**
 * A placeholder at the beginning or the end of a line, or a token of Qwen's. Within a line, `<image>` may be a word
 * about HTML.
 */
const PLACEHOLDER =
  /^\s*<(?:image|video|audio)>|<(?:image|video|audio)>\s*$|<\|(?:vision_start|image_pad|video_pad|image|audio_pad)\|>/m;

/** The content of a row in addition to words, for a message. Null without any. */
export function mediaBeside(row: Row, words: string): string | null {
  const column = Object.entries(row).find(
    ([name, value]) => holdsImages(value) || (COLUMNS.has(name) && namesFiles(value)),
  );
  if (column !== undefined) return `images or videos in column '${column[0]}' (${inBrief(column[1])})`;
  const placeholder = PLACEHOLDER.exec(words)?.[0].trim();
  return placeholder === undefined ? null : `a placeholder for an image or a video, ${placeholder}`;
}

/** Whether a value is an image in the form of Hugging Face's datasets, {bytes, path}, or a list of them. */
export function holdsImages(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0 && value.every(holdsImages);
  if (value instanceof Uint8Array) return true;
  return typeof value === 'object' && value !== null && 'bytes' in value && value.bytes !== null;
}

/**
 * Whether a value can become words: it contains neither bytes nor a number that is not finite, such as the NaN that
 * pandas writes for a missing one.
 */
export function isSayable(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value);
  if (value instanceof Uint8Array) return false;
  return typeof value !== 'object' || value === null || Object.values(value).every(isSayable);
}

function namesFiles(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(namesFiles);
  return (typeof value === 'string' && value !== '') || (typeof value === 'object' && value !== null);
}
