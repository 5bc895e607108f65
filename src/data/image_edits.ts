/**
 * Edits of images in rows: JSON lines (or parquet) with the image before the edit, the instruction, and for labeled
 * edits a possible description and the image after the edit. For edits of several images, the column lists them.
 */
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { basename, dirname, extname, isAbsolute, resolve } from 'node:path';
import { DataError } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { inBrief } from '../core/text.js';
import { pixelDigest } from './overlap.js';
import { type ImageSize, headerSize, imageBytes } from './image_files.js';
import { type SampleSource, oneOf } from './types.js';
import { type Row, firstRows, holdsImages, readRows, rowFiles, valueAt } from './rows.js';

export interface ImageEdit {
  /** Names the sample independently of the machine. */
  readonly id: string;
  readonly instruction: string;
  /** The image's local path. */
  readonly source: string;
  /** The files of the further images, in order. Absent for a single image. */
  readonly further?: readonly string[];
  /** The labeled description of the edit. Null without one. */
  readonly response: string | null;
  /** The local path of the edited image. Null without one. */
  readonly target: string | null;
  /** The location of its row, for messages. */
  readonly where: string;
  /** The whole row, for rewards that read other columns. */
  readonly row: Row;
}

/** The files of all images before an edit, in order. */
export function sourcesOf({
  source,
  further = [],
}: Pick<ImageEdit, 'source' | 'further'>): readonly [string, ...string[]] {
  return [source, ...further];
}

/** A digest of the images before an edit. Raises DataError for an image that cannot be read. */
export async function sourceDigest(edit: ImageEdit): Promise<string> {
  const { where } = edit;
  const digests = await Promise.all(sourcesOf(edit).map((file) => pixelDigest(imageBytes(file, where), where)));
  return digests.length === 1 ? digests[0] : sha256(digests.join(' '));
}

/** The columns that are read. */
export interface ImageEditColumns {
  readonly source: string;
  readonly instruction: string;
  readonly response: string;
  readonly target: string;
}

/** The columns if the config names none. */
export const IMAGE_EDIT_COLUMNS: ImageEditColumns = {
  source: 'source',
  instruction: 'instruction',
  response: 'response',
  target: 'target',
};

/** Whether a path has the extension of a file of rows. Other lists of samples have other extensions. */
export function mayHoldRows(path: string): boolean {
  return ['.jsonl', '.parquet'].includes(extname(path));
}

export interface ReadImageEdits extends SampleSource<ImageEdit> {
  /** One for each line that is not a row, then one for each broken row, in order. */
  readonly problems: readonly DataError[];
}

/**
 * Reads a dataset and checks that the images in it exist, without opening them.
 * @param media the folder to which relative paths are relative. Null for the list's own folder. Raises the DataErrors of `readRows`.
 */
export async function readImageEdits(
  path: string,
  media: string | null,
  columns: ImageEditColumns,
): Promise<ReadImageEdits> {
  const rows = await readRows(path);
  if (rows.length > 0) rejectEmbeddedImages(rows.read(0), columns, rows.place(0));
  const folder = media ?? (statSync(path).isDirectory() ? path : dirname(path));
  const problems: DataError[] = [...rows.problems];
  const sizes: number[] = [];
  const samples = Array.from({ length: rows.length }, (_, index): ImageEdit | null => {
    const read = readRow(rows.read(index), columns, folder);
    const where = rows.place(index);
    if (Array.isArray(read)) {
      problems.push(broken(read, where));
      return null;
    }
    const files = [read.source, read.target, ...(read.further ?? [])];
    sizes.push(...files.flatMap((file) => (file === null ? [] : [statSync(file).size])));
    return { ...read, id: rows.id(index), where };
  });
  const whole = samples.filter((sample) => sample !== null);
  return {
    name: path,
    length: whole.length,
    remark: rows.remark,
    digest: { ids: rows.digest.ids, files: sha256(JSON.stringify([rows.digest.files, sizes])) },
    read: (index) => whole[index],
    problems,
  };
}

/** Opens a dataset all of whose rows are valid. Raises the DataErrors of `readImageEdits`, and a DataError that names all invalid rows. */
export async function openImageEdits(
  path: string,
  media: string | null,
  columns: ImageEditColumns,
): Promise<SampleSource<ImageEdit>> {
  const { problems, ...source } = await readImageEdits(path, media, columns);
  if (problems.length > 0) throw oneOf(path, problems);
  return source;
}

/** The first edits of a dataset. The rest is not read. Raises DataError for the first broken one. */
export async function firstImageEdits(
  path: string,
  media: string | null,
  columns: ImageEditColumns,
  count: number,
): Promise<readonly ImageEdit[]> {
  return (await firstRows(path, count)).map(({ row, place: where }) => {
    rejectEmbeddedImages(row, columns, where);
    const read = readRow(row, columns, media ?? (statSync(path).isDirectory() ? path : dirname(path)));
    if (Array.isArray(read)) throw broken(read, where);
    return { ...read, id: basename(where), where };
  });
}

/** Every row has the same problem, so it is reported once. */
function rejectEmbeddedImages(row: Row, { source, target }: ImageEditColumns, where: string): void {
  const column = [source, target].find((name) => holdsImages(valueAt(row, name)) || isDataUrl(valueAt(row, name)));
  if (column === undefined) return;
  throw new DataError(`column '${column}' contains images themselves; allowed: the paths of image files`, {
    where,
    next: "Write each image to a file (in Python: Path(name).write_bytes(row['source']['bytes'])) and the file's path into the column.",
  });
}

function isDataUrl(value: unknown): boolean {
  return typeof value === 'string' && /^data:[^,]{0,100},/.test(value);
}

function broken(found: readonly string[], where: string): DataError {
  return new DataError(found.join('; '), { where, next: 'Correct this row, or leave it out.' });
}

/** A parsed row, or its problem. */
function readRow(row: Row, columns: ImageEditColumns, folder: string): Omit<ImageEdit, 'id' | 'where'> | string[] {
  const problems: string[] = [];
  const isWords = (value: unknown): value is string => typeof value === 'string' && value.trim() !== '';
  const words = (column: string, needed: boolean): string | null => {
    const value = valueAt(row, column) ?? null;
    if (isWords(value)) return value;
    if (value === null && !needed) return null;
    problems.push(`column '${column}': found ${inBrief(value)}; allowed: words${needed ? '' : ', or null'}`);
    return null;
  };
  const placed = (column: string, named: string): string => {
    const place = isAbsolute(named) ? named : resolve(folder, named);
    if (!existsSync(place)) {
      problems.push(`column '${column}': there is no file ${named === place ? inBrief(named) : place}`);
    }
    return place;
  };
  const files = (column: string): readonly string[] => {
    const value = valueAt(row, column) ?? null;
    const named: readonly unknown[] = Array.isArray(value) ? value : [value];
    if (named.length > 0 && named.every(isWords)) return named.map((one) => placed(column, one));
    problems.push(`column '${column}': found ${inBrief(value)}; allowed: the path of an image, or a list of paths`);
    return [];
  };
  const [source, ...further] = files(columns.source);
  const instruction = words(columns.instruction, true);
  const response = words(columns.response, false);
  const labeled = words(columns.target, false);
  const target = labeled === null ? null : placed(columns.target, labeled);
  if (problems.length > 0 || instruction === null) return problems;
  return { source, ...(further.length === 0 ? {} : { further }), instruction, response, target, row };
}

/** A list of edits, and the column with their source images. */
export interface SourceList {
  readonly path: string;
  /** The folder that relative paths start from. Null: the folder of the list. */
  readonly media: string | null;
  readonly column: string;
}

/** The number of checked bytes of each file, and of checked rows: they represent the others. */
const MAX_BYTES = 2 ** 22;
const MAX_ROWS = 512;

/**
 * The images before the edit of every checked row of JSON lines, each null without a size in its header. Skips rows
 * with an unreadable image, and unreadable lists: opening them reports the problem.
 */
export function sourceSizes({ path, media, column }: SourceList): readonly (readonly (ImageSize | null)[])[] {
  try {
    const folder = media ?? (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true ? path : dirname(path));
    const known = new Map<string, readonly (ImageSize | null)[]>();
    const sizeOf = (named: string): readonly (ImageSize | null)[] => {
      const file = isAbsolute(named) ? named : resolve(folder, named);
      const sizes = known.get(file) ?? sizeIfRead(file);
      known.set(file, sizes);
      return sizes;
    };
    return checkedRows(path, column).flatMap(({ named }) => {
      const sizes = named.flatMap(sizeOf);
      return named.length === 0 || sizes.length < named.length ? [] : [sizes];
    });
  } catch (error) {
    if (error instanceof DataError) return [];
    throw error;
  }
}

/** The number of images before the edit of every checked row of JSON lines. Raises DataError for a list that cannot be read. */
export function sourceCounts({ path, column }: SourceList): { readonly images: number; readonly where: string }[] {
  return checkedRows(path, column).map(({ named, where }) => ({ images: named.length, where }));
}

/** The images that the first rows of JSON lines name. */
function checkedRows(path: string, column: string): { readonly named: readonly string[]; readonly where: string }[] {
  return rowFiles(path)
    .filter((file) => extname(file) === '.jsonl')
    .flatMap((file) => firstLines(file).map((line, at) => ({ line, where: `${file}:${at + 1}` })))
    .slice(0, MAX_ROWS)
    .map(({ line, where }) => ({ named: namesIn(line, column), where }));
}

/** The lines at the beginning of a file. The last may be cut, and is then not a row. */
function firstLines(path: string): string[] {
  const bytes = Buffer.alloc(Math.min(MAX_BYTES, statSync(path).size));
  const file = openSync(path, 'r');
  try {
    return bytes.toString('utf8', 0, readSync(file, bytes, 0, bytes.length, 0)).split('\n');
  } finally {
    closeSync(file);
  }
}

/** The images that a row names. None for a line that is not such a row. */
function namesIn(line: string, column: string): string[] {
  let row: unknown;
  try {
    row = JSON.parse(line);
  } catch {
    return [];
  }
  const value = Object(row) as Readonly<Record<string, unknown>>;
  const named: readonly unknown[] = [value[column]].flat();
  return named.filter((one) => typeof one === 'string');
}

/** The size in an image's header, or null without one. An empty list for an unreadable file. */
function sizeIfRead(file: string): readonly (ImageSize | null)[] {
  try {
    return [headerSize(file)];
  } catch (error) {
    if (error instanceof DataError) return [];
    throw error;
  }
}
