/**
 * Lists of samples in EARL's layout: `<dataset>/list/tokenized_datalist.json` holds `{"path_list": [...]}` whose paths are
 * absolute, relative to an optional `prefix`, or relative to `<dataset>`. EARL writes as `prefix` where the samples were on the machine
 * that made them, which its supervised training reads; its RL training never does, and takes `<dataset>`. A list that has the SHA-256 of
 * every file beside its paths (`sha256`, in the same order) is held to it. `tokenizer` names the image tokenizer of the codes.
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

/** SHA-256 of what is listed, in its order: of the paths and of the files' own digests; null where the list has none. */
export interface ListDigest {
  readonly ids: string;
  readonly files: string | null;
}

export interface Datalist {
  /** The list's own path. */
  readonly path: string;
  /** The folder that relative paths begin at. */
  readonly directory: string;
  /** A remark for the user about how the list was read; null if there is none. */
  readonly remark: string | null;
  /** Paths as they are listed: they name samples independently of where the dataset lies. */
  readonly ids: readonly string[];
  readonly digest: ListDigest;
  /** SHA-256 of every file; null where the list does not say. */
  readonly fileDigests: readonly string[] | null;
  /** The id of the image tokenizer in whose codes the samples are written; null where the list does not say. */
  readonly tokenizer: string | null;
  /** Where sample i is. */
  file(index: number): string;
}

/** What to do about a missing file. */
export function missingFileAdvice(path: string): string {
  if (/\/(?:edits|images|words|signs|captioned|clips)-[0-9a-f]{12}\//.test(path)) {
    return "The tiny world's data is not whole: remove its folder (edits-…, images-…, words-…, signs-…, captioned-… or clips-…), and the next run makes it again.";
  }
  return path.includes('tiny')
    ? "A run makes the tiny world's data before it trains: start one with an overlay such as configs/lib/tiny.libsonnet."
    : 'Check the path (APP__DATA_DIR is the folder that the configs build it from) and that the dataset is on this machine.';
}

/** Opens a list: the path of the json, or of the dataset folder that holds `list/tokenized_datalist.json`. Raises DataError. */
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
      next: 'It has to be {"path_list": ["samples/000000.npz", ...]}.',
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
      ? `${path}: its prefix ${JSON.stringify(prefix)} is no folder of this machine; as in EARL's RL, its samples are looked for in ${directory}`
      : null,
    ids,
    digest: { ids: sha256(JSON.stringify(ids)), files: fileDigests === null ? null : sha256(fileDigests.join(' ')) },
    fileDigests,
    tokenizer,
    file: (index) => (isAbsolute(ids[index]) ? ids[index] : join(directory, ids[index])),
  };
}

/** Reads a listed file. Raises DataError, naming it and what to do, where it is not there or not what the list says. */
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
    next: 'Something has written to the dataset since it was made: copy or make it again. Data of the tiny world is made again once its folder (edits-… or images-…) is removed.',
  });
}
