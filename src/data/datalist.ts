/**
 * Lists of samples in EARL's layout: `<dataset>/list/tokenized_datalist.json` holds `{"path_list": [...]}` whose paths are
 * absolute, relative to an optional `prefix`, or relative to `<dataset>`. EARL's `prefix` is the folder of the samples on the
 * machine that made them. Its supervised training reads it, and its RL training uses `<dataset>`. Files are checked if the
 * list has their SHA-256 (`sha256`, in the order of the paths). `tokenizer` names the image tokenizer of the codes.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { z } from 'zod';
import { DataError } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { parseJson, readTextFile, refuseLfsPointer } from '../core/text.js';

export const DATALIST_NAME = 'tokenized_datalist.json';

const digestOfFile = z.string().regex(/^[0-9a-f]{64}$/);
const datalistSchema = z
  .object({
    path_list: z.array(z.string().min(1)),
    prefix: z.string().optional(),
    sha256: z.array(digestOfFile).optional(),
    tokenizer: z.string().min(1).optional(),
  })
  .refine(({ path_list, sha256 }) => sha256 === undefined || sha256.length === path_list.length);

/** SHA-256 of the listed paths and of the files' own digests, in order. Null if the list has none. */
export interface ListDigest {
  readonly ids: string;
  readonly files: string | null;
}

export interface Datalist {
  /** The list's own path. */
  readonly path: string;
  /** The folder that relative paths start from. */
  readonly directory: string;
  /** A note for the user about reading the list. Null without one. */
  readonly remark: string | null;
  /** Paths as listed: they name samples independently of the dataset's location. */
  readonly ids: readonly string[];
  readonly digest: ListDigest;
  /** SHA-256 of every file. Null if the list has none. */
  readonly fileDigests: readonly string[] | null;
  /** The id of the image tokenizer for the samples' codes. Null if the list has none. */
  readonly tokenizer: string | null;
  /** The path of sample i. */
  file(index: number): string;
}

/** The remedy for a missing file. */
export function missingFileAdvice(path: string): string {
  if (/\/(?:edits|images|words|signs|captioned|clips)-[0-9a-f]{12}\//.test(path)) {
    return "The tiny world's data is incomplete: remove its folder (edits-…, images-…, words-…, signs-…, captioned-… or clips-…), and the next run creates it again.";
  }
  return path.includes('tiny')
    ? "A run makes the tiny world's data before it trains: start one with an overlay such as configs/lib/tiny.libsonnet."
    : 'Check the path (APP__DATA_DIR is the folder that the configs build it from) and that the dataset is on this machine.';
}

/**
 * Opens a list: the path of the json, or of the dataset folder with `list/tokenized_datalist.json`. Raises DataError.
 */
export function openDatalist(given: string): Datalist {
  const absolute = resolve(given);
  const folder = existsSync(absolute) && statSync(absolute).isDirectory();
  const path = folder ? join(absolute, 'list', DATALIST_NAME) : absolute;
  let parsed: unknown;
  try {
    parsed = parseJson(readTextFile(path), path);
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    const found = code === 'ENOENT' ? 'there is no list of samples here' : `cannot read the list of samples (${code})`;
    throw new DataError(found, { where: path, next: missingFileAdvice(path), cause });
  }
  const checked = datalistSchema.safeParse(parsed);
  if (!checked.success) {
    throw new DataError('the list of samples has no "path_list" of texts, or a "sha256" that is not one for each', {
      where: path,
      next: 'It must be {"path_list": ["samples/000000.npz", ...]}.',
    });
  }
  const ids = checked.data.path_list;
  if (ids.length === 0) {
    throw new DataError('the list of samples is empty', { where: path, next: 'Remove the dataset from the config.' });
  }
  const listFolder = dirname(path);
  const dataset = basename(listFolder) === 'list' ? dirname(listFolder) : listFolder;
  const { prefix, sha256: fileDigests = null, tokenizer = null } = checked.data;
  const named = prefix === undefined ? dataset : resolve(dataset, prefix);
  const isGone = prefix !== undefined && !existsSync(named);
  const directory = isGone ? dirname(listFolder) : named;
  return {
    path,
    directory,
    remark: isGone
      ? `${path}: its prefix ${JSON.stringify(prefix)} is not a folder on this machine; as in EARL's RL, its samples are read from ${directory}`
      : null,
    ids,
    digest: { ids: sha256(JSON.stringify(ids)), files: fileDigests === null ? null : sha256(fileDigests.join(' ')) },
    fileDigests,
    tokenizer,
    file: (index) => (isAbsolute(ids[index]) ? ids[index] : join(directory, ids[index])),
  };
}

/** Reads a listed file. Raises DataError, naming it and the remedy, if it is missing or differs from the list. */
export function readListedFile(list: Datalist, index: number): { readonly path: string; readonly bytes: Uint8Array } {
  if (!Number.isInteger(index) || index < 0 || index >= list.ids.length) {
    throw new DataError(`there is no sample ${index}: the list has ${list.ids.length}`, { where: list.path });
  }
  const path = list.file(index);
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    const found =
      code === 'ENOENT'
        ? `a sample that ${list.path} lists does not exist`
        : `cannot read a sample of ${list.path} (${code})`;
    throw new DataError(found, { where: path, next: missingFileAdvice(path), cause });
  }
  refuseLfsPointer(bytes, path);
  if (list.fileDigests === null || list.fileDigests[index] === sha256(bytes)) return { path, bytes };
  throw new DataError(`a sample is not the one that was listed: its SHA-256 differs from that in ${list.path}`, {
    where: path,
    next: 'Another program changed the dataset after its creation: copy or create it again. Data of the tiny world is created again after its folder (edits-… or images-…) is removed.',
  });
}
