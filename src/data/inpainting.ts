/** An inpainting sample as pixels, and the crop of it that shows its style. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DataError } from '../core/errors.js';
import { type RgbImage, decodeImage } from '../core/images/image.js';
import { decodePlainPng } from '../core/images/png.js';
import { type Window, resizeLinearWindow } from '../core/images/resize.js';
import { type ImageSize, headerSize, sameSize, sizeText } from './image_files.js';
import {
  type InpaintSample,
  MEMBERS,
  type Member,
  type SelfBenchList,
  memberName,
  readSelfBench,
} from './self_bench.js';

/** 1 inside the painted region, 0 outside. Axes [height, width]. */
export interface Mask {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** The part of a ref that shows its style: the largest rectangle outside of the mask, the box around the mask, or the whole ref. */
export type StyleCrop = 'outside_mask' | 'mask' | 'whole';

/** Three images of one size. */
export interface Triplet {
  readonly source: RgbImage;
  readonly mask: Mask;
  readonly ref: RgbImage;
  /** The unchanged images, from which the style is cropped. */
  readonly stored: { readonly mask: Mask; readonly ref: RgbImage };
}

/**
 * Decodes a sample and resizes its images to squares of `resolution` pixels, if given. Raises one DataError for all images
 * that cannot be decoded. Also raises it for sizes that differ without a resolution, and for a mask that is not black and
 * white or leaves nothing to paint.
 */
export async function readTriplet(sample: InpaintSample, resolution: number | null = null): Promise<Triplet> {
  const bytes: Readonly<Record<Member, Uint8Array>> = {
    source: sample.sourcePng,
    mask: sample.maskPng,
    ref: sample.refPng,
  };
  const decoded = await Promise.allSettled(
    MEMBERS.map(async (member) => decodeImage(bytes[member], sample.paths[member])),
  );
  const broken = decoded.flatMap((each) => (each.status === 'rejected' ? [each.reason as unknown] : []));
  if (broken.length > 0) throw together(broken, sample.paths.source);
  const [source, mask, ref] = decoded.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  if (resolution === null) requireOneSize({ source, mask, ref }, sample.id, sample.paths.source);
  const stored = { mask: binaryMask(mask, sample.paths.mask), ref };
  if (resolution === null) return { source, ...stored, stored };
  return {
    source: squareOf(source, resolution),
    mask: squareMask(stored.mask, resolution, sample.paths.mask),
    ref: squareOf(ref, resolution),
    stored,
  };
}

/**
 * The scaled size and the center crop of an image: the shorter side is scaled to `side`, the longer by the same factor
 * (rounded down), and the center square is cut out (halves to the even pixel). As torchvision's Resize and CenterCrop.
 */
function scaledTo({ width, height }: ImageSize, side: number): { readonly size: ImageSize; readonly window: Window } {
  const long = Math.trunc((side * Math.max(width, height)) / Math.min(width, height));
  const size = width <= height ? { width: side, height: long } : { width: long, height: side };
  const middle = (length: number): number => {
    const half = (length - side) / 2;
    return Number.isInteger(half) ? half : 2 * Math.round(half / 2);
  };
  return { size, window: { left: middle(size.width), top: middle(size.height), width: side, height: side } };
}

/** By linear interpolation, as Pillow does it. */
function squareOf(image: RgbImage, side: number): RgbImage {
  const { size, window } = scaledTo(image, side);
  return resizeLinearWindow(image, size, window);
}

/** By the nearest pixel. Raises DataError if no white pixel is left. */
function squareMask(mask: Mask, side: number, where: string): Mask {
  const { size, window } = scaledTo(mask, side);
  const [x, y] = [
    nearestPlaces(mask.width, size.width, window.left, side),
    nearestPlaces(mask.height, size.height, window.top, side),
  ];
  const data = Uint8Array.from({ length: side * side }, (_, at) => {
    return mask.data[y[Math.floor(at / side)] * mask.width + x[at % side]];
  });
  if (data.includes(1)) return { width: side, height: side, data };
  throw new DataError(`the center square of ${side}x${side} pixels contains no part of the mask`, {
    where,
    next: 'Crop the images around the mask, or set data.resolution to null.',
  });
}

/** For `count` pixels of a scaled side, from `first` on, the pixel of the side that each of them shows. */
function nearestPlaces(from: number, to: number, first: number, count: number): Int32Array {
  return Int32Array.from({ length: count }, (_, at) =>
    Math.min(from - 1, Math.floor((first + at + 0.5) * (from / to))),
  );
}

/** Raises DataError if the images of a sample have different sizes. */
export function requireOneSize(sizes: Readonly<Record<Member, ImageSize>>, id: string, where: string): void {
  const { source, mask, ref } = sizes;
  if (sameSize(source, mask) && sameSize(source, ref)) return;
  const found = `source ${sizeText(source)}, mask ${sizeText(mask)}, ref ${sizeText(ref)}`;
  throw new DataError(`the images of sample ${id} differ in size: ${found}`, {
    where,
    next: 'Give the three images one size, or set data.resolution, which makes each a square.',
  });
}

/** Returns a single error unchanged, and joins several into one that names each of their places. */
function together(errors: readonly unknown[], where: string): unknown {
  const [first] = errors;
  if (errors.length === 1 || !errors.every((each) => each instanceof DataError)) return first;
  return new DataError(errors.map((each) => `${each.where ?? where}: ${each.message}`).join('; '), { cause: first });
}

const MASK_FORM = 'A mask is white (255) inside the painted region and black (0) elsewhere, with nothing between.';

/** The pixels of a mask. Raises DataError for one that is empty or has a value between black and white. */
export function binaryMask({ width, height, data }: RgbImage, where: string): Mask {
  const mask = new Uint8Array(width * height);
  let [between, white] = [0, 0];
  for (let at = 0; at < mask.length; at++) {
    const [red, green, blue] = data.subarray(3 * at, 3 * at + 3);
    if ((red !== 0 && red !== 255) || red !== green || red !== blue) between += 1;
    mask[at] = red === 255 ? 1 : 0;
    white += mask[at];
  }
  if (between > 0) {
    const found = `${between} of its ${mask.length} pixels are neither black nor white`;
    throw new DataError(`the mask is not binary: ${found}`, { where, next: MASK_FORM });
  }
  if (white > 0) return { width, height, data: mask };
  throw new DataError('the mask is empty: all of it is black', {
    where,
    next: MASK_FORM,
  });
}

type Box = Window;

/** The rectangle of a ref by a rule. It may extend beyond the ref. Raises the DataErrors of `styleCrop`. */
function boxFor(rule: StyleCrop, mask: Mask, ref: ImageSize, where: string): Box {
  if (rule === 'whole') return { left: 0, top: 0, width: ref.width, height: ref.height };
  if (rule === 'mask') {
    const { left, top, width, height } = boxOf(mask);
    // Cut again at the box's place, a ref that is the cut already would be all black.
    if (ref.width === width && ref.height === height) return { left: 0, top: 0, width, height };
    if (left >= ref.width || top >= ref.height) throw otherSize(mask, ref, where);
    return { left, top, width: Math.max(1, width - 1), height: Math.max(1, height - 1) };
  }
  if (!sameSize(mask, ref)) throw otherSize(mask, ref, where);
  const found = largestOutside(mask);
  if (found !== null) return found;
  throw new DataError('the mask covers the whole image, so there is no style crop', {
    where,
    next: "Set data.style_crop to 'mask' or 'whole'.",
  });
}

function otherSize(mask: Mask, ref: ImageSize, where: string): DataError {
  const { left, top } = boxOf(mask);
  const found = `the ref has ${sizeText(ref)} pixels, and its mask ${sizeText(mask)}, white from (${left}, ${top}) on`;
  return new DataError(`${found}: the mask defines no crop of the ref`, {
    where,
    next: "Set data.style_crop to 'whole' if refs are crops already, or resize ref and mask to one size.",
  });
}

/** The smallest rectangle that contains the mask. */
function boxOf({ width, height, data }: Mask): Box {
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (data[y * width + x] === 0) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), y];
    }
  }
  return { left, top, width: right - left + 1, height: bottom - top + 1 };
}

/**
 * The crop of an image that shows its style. Black beyond the image. Raises DataError, naming `where`, for
 * `outside_mask` of a mask that covers everything, and for a mask whose size differs from the ref's.
 */
export function styleCrop(ref: RgbImage, mask: Mask, rule: StyleCrop, where: string): RgbImage {
  const box = boxFor(rule, mask, ref, where);
  const data = new Uint8Array(box.width * box.height * 3);
  const seen = Math.min(box.width, ref.width - box.left);
  for (let y = 0; y < Math.min(box.height, ref.height - box.top); y++) {
    const from = ((box.top + y) * ref.width + box.left) * 3;
    data.set(ref.data.subarray(from, from + seen * 3), y * box.width * 3);
  }
  return { width: box.width, height: box.height, data };
}

/** The largest rectangle without a masked pixel, the first from the top and the left of those. Null without one. */
function largestOutside({ width, height, data }: Mask): Box | null {
  // How far up the unmasked pixels reach in each column, from the row at hand.
  const heights = new Array<number>(width).fill(0);
  let best: Box | null = null;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) heights[x] = data[y * width + x] === 1 ? 0 : heights[x] + 1;
    for (const { left, span, high } of widestBelow(heights)) {
      if (best !== null && span * high <= best.width * best.height) continue;
      best = { left, top: y - high + 1, width: span, height: high };
    }
  }
  return best;
}

/** For every bar of a histogram the widest run of bars that reach its height, each run once. */
function widestBelow(heights: readonly number[]): { left: number; span: number; high: number }[] {
  const runs: { left: number; span: number; high: number }[] = [];
  const open: { left: number; high: number }[] = [];
  for (let x = 0; x <= heights.length; x++) {
    const high = x < heights.length ? heights[x] : 0;
    let left = x;
    for (let last = open.at(-1); last !== undefined && last.high > high; last = open.at(-1)) {
      open.pop();
      runs.push({ left: last.left, span: x - last.left, high: last.high });
      left = last.left;
    }
    if (high > 0 && open.at(-1)?.high !== high) open.push({ left, high });
  }
  return runs;
}

/** The number of pixels of masks that a run checks. `editrl data check` checks all. */
const MAX_MASK_PIXELS = 2 ** 26;

/**
 * The problems of a list's samples, by the headers of their files and their masks.
 * @param side both sides of every image must be multiples of it
 * @param resolution of the squares to which images are resized. Null: no resizing
 */
export function checkSamples(
  { folder, lines }: Pick<SelfBenchList, 'folder' | 'lines'>,
  side = 1,
  resolution: number | null = null,
): DataError[] {
  let pixels = 0;
  if (resolution !== null && resolution % side !== 0) {
    const next = `Set it to a multiple of ${side}.`;
    return [
      new DataError(`found ${resolution}, which is not a multiple of the patch size ${side}`, {
        where: 'data.resolution',
        next,
      }),
    ];
  }
  return lines.flatMap(({ number, stem }) => {
    const path = (member: Member): string => join(folder, memberName(stem, member));
    const problems: DataError[] = [];
    const sizes = Object.fromEntries(
      MEMBERS.map((member) => [member, problemOr(problems, () => headerSize(path(member)))]),
    ) as Record<Member, ImageSize | null>;
    const { source, mask, ref } = sizes;
    if (resolution === null && source !== null && mask !== null && ref !== null) {
      problemOr(problems, () => requireOneSize({ source, mask, ref }, number, path('source')));
      problemOr(problems, () => requireWhole(ref, side, path('ref')));
    }
    if (mask !== null && pixels < MAX_MASK_PIXELS) {
      pixels += mask.width * mask.height;
      problemOr(problems, () => {
        const decoded = decodePlainPng(readFileSync(path('mask')), MAX_MASK_PIXELS);
        if (decoded !== null) binaryMask(decoded, path('mask'));
      });
    }
    return problems;
  });
}

/** The largest image of a dataset, by the headers. Null if none can be read. */
export function largestImage(path: string): ImageSize | null {
  const problems: DataError[] = [];
  const list = problemOr(problems, () => readSelfBench(path));
  const sizes = (list?.lines ?? []).flatMap(
    ({ stem }) => problemOr(problems, () => headerSize(join(list?.folder ?? '', memberName(stem, 'ref')))) ?? [],
  );
  return sizes.reduce<ImageSize | null>((most, one) => (most !== null && area(most) >= area(one) ? most : one), null);
}

const area = ({ width, height }: ImageSize): number => width * height;

function problemOr<T>(problems: DataError[], look: () => T): T | null {
  try {
    return look();
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    problems.push(error);
    return null;
  }
}

/** Raises DataError for sides that are not multiples of the patch size. */
export function requireWhole(size: ImageSize, side: number, where: string): void {
  if (size.width % side === 0 && size.height % side === 0) return;
  throw new DataError(`an image of ${sizeText(size)} pixels is not a multiple of the patch size ${side}`, {
    where,
    next: `Give the images sides that are multiples of ${side}.`,
  });
}
