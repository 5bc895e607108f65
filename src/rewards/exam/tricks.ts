/** Changes that make no edit better: what a judge must not be moved by. */
import sharp, { type Sharp } from 'sharp';
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

/** The same picture, a little brighter everywhere. */
function brightened(image: RgbImage): RgbImage {
  return { ...image, data: image.data.map((value) => Math.min(255, value + BRIGHTER)) };
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
  const bytes = await raw(image).jpeg({ quality: JPEG_QUALITY, chromaSubsampling: '4:4:4' }).toBuffer();
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

const raw = ({ width, height, data }: RgbImage): Sharp => sharp(data, { raw: { width, height, channels: 3 } });

async function redrawn(drawing: Sharp, { width, height }: RgbImage): Promise<RgbImage> {
  const data = await drawing.raw().toBuffer();
  return { width, height, data: new Uint8Array(data.buffer, data.byteOffset, data.length) };
}

/** Softened by a Gaussian whose deviation is a 24th of the picture's width. */
export function blurred(image: RgbImage): Promise<RgbImage> {
  return redrawn(raw(image).blur(Math.max(1, image.width / 24)), image);
}

/** The picture without a border of an eighth on each side, in its old size (nearest pixel). */
export function cropped(image: RgbImage): Promise<RgbImage> {
  const { width, height } = image;
  const [left, top] = [Math.floor(width / 8), Math.floor(height / 8)];
  const inner = raw(image).extract({ left, top, width: width - 2 * left, height: height - 2 * top });
  return redrawn(inner.resize(width, height, { fit: 'fill', kernel: 'nearest' }), image);
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
