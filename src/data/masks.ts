/** Pictures that say where an edit may change its source: white there, black elsewhere. */
import sharp from 'sharp';
import { DataError } from '../core/errors.js';
import { pictureBytes, readFitted, sameShape, sameSize, sizeText, type PictureSize } from './pictures.js';

/** A pixel whose red is as bright as this is white. */
const WHITE = 128;
/** Rounding to binary fractions moves no pixel into the next square. */
const TOLERANCE = 1e-6;

/** What a mask belongs to. */
export interface MaskedPicture {
  /** Before it was fitted. */
  readonly original: PictureSize;
  /** As fitted: scaled until it covers this, and cropped at the middle; where pictures are not brought to one size, each axis scaled to it. */
  readonly fitted: PictureSize;
  /** Whether all pictures are brought to one size. */
  readonly resized: boolean;
}

/**
 * Per square of `patch` pixels of the fitted picture, row by row, 1 where any white pixel of the mask lies. Masks are not scaled, so that thin lines stay.
 * Raises DataError with `where` for a mask that does not go with the picture, is transparent somewhere, or has no white in what is shown.
 */
export async function readMask(path: string, where: string, of: MaskedPicture, patch: number): Promise<Uint8Array> {
  const { original, resized } = of;
  const { image } = await readFitted(path, where, null);
  if (!(resized ? sameShape : sameSize)(original, image)) {
    const wanted = resized ? 'the same shape, to be cropped alike' : 'the same size; --size makes one of all';
    const found = `the source is ${sizeText(original)} pixels, the mask ${sizeText(image)}`;
    throw new DataError(`${found}; allowed: ${wanted}`, { where });
  }
  // Some programs mark with transparency what may change, others what may not.
  if (!(await sharp(pictureBytes(path, where)).stats()).isOpaque) {
    throw new DataError(
      'the mask is transparent in places; allowed: white where the edit may change the picture, black elsewhere',
      {
        where,
        next: 'Save it again without transparency.',
      },
    );
  }
  const cells = squaresOf(image, of, patch);
  if (cells.includes(1)) return cells;
  throw new DataError('the mask has no white, so that nothing may be changed', {
    where,
    next: 'Paint white what the edit may change, or leave "mask" out.',
  });
}

function squaresOf(
  { width, height, data }: PictureSize & { readonly data: Uint8Array },
  { fitted, resized }: MaskedPicture,
  patch: number,
): Uint8Array {
  const [columns, rows] = [fitted.width / patch, fitted.height / patch];
  const apart = [fitted.width / width, fitted.height / height] as const;
  const [wide, high] = resized ? [Math.max(...apart), Math.max(...apart)] : apart;
  const across = { scale: wide, cut: (width * wide - fitted.width) / 2, count: columns };
  const down = { scale: high, cut: (height * high - fitted.height) / 2, count: rows };
  /** The squares that a pixel reaches into along one axis, the last one excluded. */
  const reach = (at: number, { scale, cut, count }: typeof across): readonly [number, number] => [
    Math.max(0, Math.floor((at * scale - cut) / patch + TOLERANCE)),
    Math.min(count, Math.ceil(((at + 1) * scale - cut) / patch - TOLERANCE)),
  ];
  const cells = new Uint8Array(columns * rows);
  for (let pixel = 0; pixel < width * height; pixel++) {
    if (data[3 * pixel] < WHITE) continue;
    const [from, to] = reach(pixel % width, across);
    const [first, last] = reach(Math.floor(pixel / width), down);
    for (let row = first; row < last; row++) {
      if (from < to) cells.fill(1, row * columns + from, row * columns + to);
    }
  }
  return cells;
}
