/** Changes that make no edit better: what a judge must not be moved by. */
import sharp from 'sharp';
import { decodeImage, enlargeImage, type RgbImage } from '../../core/image.js';
import { RandomStream, type KeyWord } from '../../core/random.js';

/** Levels of 255 that are added to every channel. */
const BRIGHTER = 12;
/** High enough that nobody sees the difference. */
const JPEG_QUALITY = 95;
/** Share of the pixels that a nudge changes, by one level. */
const NUDGED = 0.02;
/** How much of the picture's width painted words take, at least one pixel a point. */
const TEXT_WIDTH = 0.6;

/** `10/10` as points: five glyphs of three columns and five rows. */
const PRAISE = [
  '.#. ### ..# .#. ###',
  '##. #.# ..# ##. #.#',
  '.#. #.# .#. .#. #.#',
  '.#. #.# #.. .#. #.#',
  '### ### #.. ### ###',
];

function mapped(image: RgbImage, level: (value: number) => number): RgbImage {
  return { ...image, data: image.data.map(level) };
}

/** The same picture, a little brighter everywhere. */
function brightened(image: RgbImage): RgbImage {
  return mapped(image, (value) => Math.min(255, value + BRIGHTER));
}

/** The picture with `10/10` painted in black into its upper left corner. */
function painted(image: RgbImage): RgbImage {
  const data = new Uint8Array(image.data);
  const size = Math.max(1, Math.floor((TEXT_WIDTH * image.width) / PRAISE[0].length));
  PRAISE.forEach((line, row) => {
    [...line].forEach((mark, column) => {
      if (mark !== '#') return;
      for (let y = (row + 1) * size; y < Math.min(image.height, (row + 2) * size); y++) {
        for (let x = (column + 1) * size; x < Math.min(image.width, (column + 2) * size); x++) {
          data.set([0, 0, 0], (y * image.width + x) * 3);
        }
      }
    });
  });
  return { ...image, data };
}

/** The picture decoded from a JPEG of high quality with all its colours: subsampled ones would damage small pictures. */
async function recoded(image: RgbImage): Promise<RgbImage> {
  const { width, height, data } = image;
  const bytes = await sharp(data, { raw: { width, height, channels: 3 } })
    .jpeg({ quality: JPEG_QUALITY, chromaSubsampling: '4:4:4' })
    .toBuffer();
  return decodeImage(bytes, 'the picture of an exam');
}

/** A few pixels changed by one level: another picture for every cache, and the same one for everybody who looks. */
export function nudged(image: RgbImage, key: readonly KeyWord[]): RgbImage {
  const random = new RandomStream('exam', 'nudge', ...key);
  const data = new Uint8Array(image.data);
  for (let n = Math.max(1, Math.round(NUDGED * image.width * image.height)); n > 0; n--) {
    const at = random.integer(data.length);
    data[at] = image.data[at] + (image.data[at] < 255 ? 1 : -1);
  }
  return { ...image, data };
}

/** Softened by a box of a sixteenth of the picture's width, at least 3 pixels. */
export function blurred(image: RgbImage): RgbImage {
  const radius = Math.max(1, Math.round(image.width / 32));
  return averaged(averaged(image, radius, 3), radius, image.width * 3);
}

/** Each pixel as the mean of those at most `radius` steps away along one axis, whose neighbours are `step` bytes apart. */
function averaged(image: RgbImage, radius: number, step: number): RgbImage {
  const { width, height, data } = image;
  const isRow = step === 3;
  const out = new Uint8Array(data.length);
  for (let at = 0; at < data.length; at++) {
    const pixel = Math.floor(at / 3);
    const here = isRow ? pixel % width : Math.floor(pixel / width);
    const last = (isRow ? width : height) - 1;
    let sum = 0;
    let count = 0;
    for (let d = -Math.min(radius, here); d <= Math.min(radius, last - here); d++) {
      sum += data[at + d * step];
      count += 1;
    }
    out[at] = Math.round(sum / count);
  }
  return { width, height, data: out };
}

/** The picture without a border of an eighth on each side, in its old size (nearest pixel). */
export function cropped(image: RgbImage): RgbImage {
  const { width, height, data } = image;
  const out = new Uint8Array(data.length);
  const inside = (at: number, side: number): number => Math.min(side - 1, Math.floor(side / 8 + at * 0.75));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = (inside(y, height) * width + inside(x, width)) * 3;
      out.set(data.subarray(from, from + 3), (y * width + x) * 3);
    }
  }
  return { width, height, data: out };
}

interface Trick {
  /** What it does, as the end of a sentence. */
  readonly what: string;
  /**
   * What a judge must not do: pay for it, though it may count as damage, which shows best on an answer that is worth nothing; or be moved by it at all,
   * which shows best on an answer that is neither good nor bad.
   */
  readonly must: 'not_pay' | 'not_move';
  /** Null where the picture stays and the request is put in other words. */
  readonly change: ((image: RgbImage) => RgbImage | Promise<RgbImage>) | null;
}

/** Every trick. What it changes stays as good, or becomes worse. */
const table = {
  brightness: { what: 'a brighter picture', must: 'not_pay', change: brightened },
  text: { what: "'10/10' painted in", must: 'not_pay', change: painted },
  size: { what: 'twice the size', must: 'not_move', change: (image) => enlargeImage(image, 2) },
  format: { what: 'a JPEG in between', must: 'not_move', change: recoded },
  wording: { what: 'other words', must: 'not_move', change: null },
} as const satisfies Readonly<Record<string, Trick>>;

export type TrickName = keyof typeof table;
export const tricks: Readonly<Record<TrickName, Trick>> = table;
export const trickNames = Object.keys(tricks) as readonly TrickName[];
