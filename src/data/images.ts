/** Datasets of plain images, for tokenizers and other models that learn from pixels alone. */
import { decodeImage, type RgbImage } from '../core/image.js';
import { openDatalist, readListedFile } from './datalist.js';
import type { SampleSource } from './types.js';

/** One image file. */
export interface ImageSample {
  /** Its path relative to the dataset. */
  readonly id: string;
  /** Where it is on this machine. */
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
