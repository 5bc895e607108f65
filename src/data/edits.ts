/** Datasets of edits, whatever their files look like: a table by file suffix says how a sample is read. */
import { extname } from 'node:path';
import { DataError } from '../core/errors.js';
import { sha256 } from '../core/image.js';
import { openDatalist, readListedFile } from './datalist.js';
import { decodeTorchSample } from './earl_sample.js';
import { decodeEditSample } from './npz.js';
import { pixelDigest, type ComparedSample } from './overlap.js';
import type { EditSample, SampleSource } from './types.js';

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

/** An edit as it is compared with others. The picture is compared by its pixels, or by its codes where these alone tell what it shows. */
export function comparedEdit(source: SampleSource<EditSample>, index: number): ComparedSample {
  const { id, instruction, sourcePng, source: grid } = source.read(index);
  const picture = async (): Promise<string> =>
    sourcePng === null ? sha256(`${grid.height}x${grid.width} ${grid.codes.join(' ')}`) : pixelDigest(sourcePng, id);
  return { id, words: instruction, picture };
}
