/**
 * Images with captions, in the form of Hugging Face's image folders: JSON lines (or parquet) whose rows have
 * `file_name`, relative to the file's own folder, and `text`. An image may have several rows.
 */
import { statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { DataError } from '../core/errors.js';
import { decodeImage, sha256, type RgbImage } from '../core/images/image.js';
import type { ListDigest } from './datalist.js';
import { pixelDigest, type ComparedSample } from './overlap.js';
import { imageBytes } from './image_files.js';
import { openRows } from './rows.js';
import type { SampleSource } from './types.js';

export interface CaptionedImage {
  readonly id: string;
  readonly text: string;
  /** The image's local path. */
  readonly path: string;
  /** The location of its row, for messages. */
  readonly where: string;
}

/**
 * Opens a list of captioned images, or the folder around it. Raises the DataErrors of `openRows`. A row is checked when it
 * is read.
 */
export async function openCaptioned(path: string): Promise<SampleSource<CaptionedImage>> {
  const rows = await openRows(path);
  const folder = statSync(path).isDirectory() ? path : dirname(path);
  const read = (index: number): CaptionedImage => {
    const where = rows.place(index);
    const { file_name: file, text } = rows.read(index);
    if (typeof file !== 'string' || file === '' || typeof text !== 'string' || text.trim() === '') {
      throw new DataError(
        'the row has no image with a caption; allowed: {"file_name": "1.png", "text": "a red circle"}',
        { where },
      );
    }
    return { id: rows.id(index), text, path: resolve(folder, file), where };
  };
  let digest: ListDigest | null = null;
  return {
    name: path,
    length: rows.length,
    remark: null,
    /** The first request reads every image once. */
    get digest() {
      return (digest ??= {
        ids: rows.digest.ids,
        files: digestOf(Array.from({ length: rows.length }, (_, i) => read(i))),
      });
    },
    read,
  };
}

/** A digest of the images' bytes, in the order of the rows. Raises DataError for an image that cannot be read. */
function digestOf(samples: readonly CaptionedImage[]): string {
  const known = new Map<string, string>();
  const digests = samples.map(({ path, where }) => {
    const found = known.get(path) ?? sha256(imageBytes(path, where));
    known.set(path, found);
    return found;
  });
  return sha256(digests.join(' '));
}

/** The image of a row. Raises DataError, naming the row, if it cannot be read. */
export async function captionedPixels({ path, where }: CaptionedImage): Promise<RgbImage> {
  return decodeImage(imageBytes(path, where), path);
}

/** A captioned image for the comparison with others. */
export function comparedCaption(source: SampleSource<CaptionedImage>, index: number): ComparedSample {
  const { id, text, path, where } = source.read(index);
  return { id, words: text, image: () => pixelDigest(imageBytes(path, where), path) };
}
