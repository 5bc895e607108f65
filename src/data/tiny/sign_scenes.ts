/**
 * The tiny world's signs as inpainting data: a word in one color on paper of another, above a strip that shows both colors.
 *
 *   <root>/signs-<hash>/signs/{labelled,train,validation}/   datasets in the layout of data/self_bench.ts
 *
 * The prompt contains the word of a sign, and the strip shows its colors. The mask covers everything above the strip, where
 * the source is gray. Words of `validation` occur in no other split, because the letters of a word alone decide its split,
 * with any seed and size.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError, InternalError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { sha256, type RgbImage } from '../../core/images/image.js';
import { encodePlainPng } from '../../core/images/png.js';
import { RandomStream } from '../../core/random.js';
import { memberName, SELF_BENCH_NAME, SUMS_NAME, type Member } from '../self_bench.js';
import type { TinySignSettings } from './settings.js';
import { tinyDataset } from './build.js';
import type { Rgb } from './draw.js';
import { drawSign, wordSize, type Spacing } from './signs.js';

/** Sizes in pixels. Everything on a sign scales with its height. */
export interface SignGeometry {
  readonly width: number;
  readonly height: number;
}

/** The height of a letter in pixels: half of the sign's. */
export function letterHeight({ height }: SignGeometry): number {
  return Math.round(height / 2);
}

export const SIGN_SPLITS = ['labelled', 'train', 'validation'] as const;
export type SignSplit = (typeof SIGN_SPLITS)[number];

/** Without letters that OCR of small print confuses with others, such as O and 0. */
export const ALPHABET = 'ABCEFHKLMNPRSTUXY';

export interface SignWorld {
  readonly seed: number;
  readonly geometry: SignGeometry;
  /** Letters of a word. */
  readonly letters: number;
  /** Least and greatest strength of the ink on labeled signs, which are worn: 1 is fresh ink, 0 paper. Drawn uniformly for each sign. */
  readonly labelledInk: readonly [number, number];
  /** Signs in each split. */
  readonly sizes: Readonly<Record<SignSplit, number>>;
}

/** The world for the settings. */
export function signWorld(settings: TinySignSettings): SignWorld {
  const { seed, width, height, letters, counts } = settings;
  return { seed, geometry: { width, height }, letters, labelledInk: LABELLED_INK, sizes: counts };
}

/** Labeled signs are worn: a policy that learns only from them paints worn signs, so rewards can improve it. */
const LABELLED_INK = [0.3, 0.9] as const;

/** The smallest signs that both tesseract and PaddleOCR read, with the letters that neither confuses. */
export const DEFAULT_SIGN: SignGeometry = { width: 32, height: 16 };

/** A letter has the same pixels at every position, so that a small model learns it once. */
export const SPACING: Spacing = 'cells';

/** The rows of the strip at the lower edge: half of them paper, the rest a bar of ink. */
export function stripRows({ height }: SignGeometry): { readonly paper: number; readonly bar: number } {
  const all = Math.max(2, Math.round(height / 4));
  return { paper: Math.ceil(all / 2), bar: Math.floor(all / 2) };
}

/** The rows above the strip, which are masked and contain the word. */
export function wordRows(geometry: SignGeometry): number {
  const { paper, bar } = stripRows(geometry);
  return geometry.height - paper - bar;
}

/**
 * The rows in which a word is centered vertically: all except the bar. Text readers need paper above and below a word.
 */
export function paperRows(geometry: SignGeometry): number {
  return geometry.height - stripRows(geometry).bar;
}

/** The source's color inside the mask, which reveals nothing about the sign. */
export const UNKNOWN: Rgb = [128, 128, 128];

/** The appearance of a sign. */
export interface SignStyle {
  readonly ink: Rgb;
  readonly paper: Rgb;
}

/** A sign with everything that a dataset stores about it. */
export interface SignScene extends SignStyle {
  readonly word: string;
  readonly prompt: string;
  readonly images: Readonly<Record<Member, RgbImage>>;
}

function filled(width: number, height: number, colour: (y: number) => Rgb): RgbImage {
  const data = new Uint8Array(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) data.set(colour(y), (y * width + x) * 3);
  }
  return { width, height, data };
}

/** A sign with a word, which may be empty, in ink of the given strength. Raises the DataErrors of `drawSign`. */
export function drawStyledSign(
  word: string,
  { ink: fresh, paper }: SignStyle,
  geometry: SignGeometry,
  strength = 1,
): RgbImage {
  const { width, height } = geometry;
  const ink = fresh.map((value, c) => Math.round(paper[c] + (value - paper[c]) * strength)) as unknown as Rgb;
  const rows = paperRows(geometry);
  const sign = filled(width, height, (y) => (y < rows ? paper : fresh));
  const size = letterHeight(geometry);
  sign.data.set(drawSign(word, { size, ink, paper, width, height: rows, spacing: SPACING }).data);
  return sign;
}

/** Paper and ink differ by at least this in luminance (of 255), which text readers need. */
const MIN_CONTRAST = 110;
/** Both differ from UNKNOWN by at least this value in a channel, so that they cannot be confused with it. */
const MIN_FROM_UNKNOWN = 32;

/** ITU-R BT.601. */
function luminance([red, green, blue]: Rgb): number {
  return 0.299 * red + 0.587 * green + 0.114 * blue;
}

function drawStyle(random: RandomStream): SignStyle {
  const colour = (): Rgb => [random.integer(256), random.integer(256), random.integer(256)];
  const isKnown = (rgb: Rgb): boolean => rgb.some((value, i) => Math.abs(value - UNKNOWN[i]) >= MIN_FROM_UNKNOWN);
  for (let draw = 0; draw < MAX_DRAWS; draw++) {
    const [ink, paper] = [colour(), colour()];
    const clear = Math.abs(luminance(ink) - luminance(paper)) >= MIN_CONTRAST;
    if (clear && isKnown(ink) && isKnown(paper)) return { ink, paper };
  }
  throw new InternalError(`no colors of a sign after ${MAX_DRAWS} draws`);
}

/** The share of held-out words, for all seeds and sizes. */
const HELD_OUT_SHARE = 0.25;
const MAX_DRAWS = 10_000;

/** Whether a word belongs to `validation`. */
export function isHeldOut(word: string): boolean {
  return new RandomStream('tiny', 'signs', word).uniform() < HELD_OUT_SHARE;
}

function drawWord(random: RandomStream, { letters }: SignWorld, split: SignSplit): string {
  for (let draw = 0; draw < MAX_DRAWS; draw++) {
    const word = Array.from({ length: letters }, () => random.pick([...ALPHABET])).join('');
    if (isHeldOut(word) === (split === 'validation')) return word;
  }
  throw new InternalError(`no word of ${letters} letters for ${split} after ${MAX_DRAWS} draws`);
}

/** The prompt for a sign with a word. */
export function promptOf(word: string): string {
  return `a sign that says "${word}"`;
}

/** The sign at an index of a split. A pure function of the seed, the split and the index. Raises the ConfigErrors of `checkSigns`. */
export function drawSignScene(world: SignWorld, split: SignSplit, index: number): SignScene {
  const { seed, geometry } = world;
  const random = new RandomStream(seed, 'tiny', 'signs', split, index);
  const word = drawWord(random, world, split);
  const style = drawStyle(random);
  const [least, most] = world.labelledInk;
  const strength = split === 'labelled' ? least + (most - least) * random.uniform() : 1;
  const ref = drawStyledSign(word, style, geometry, strength);
  const rows = wordRows(geometry);
  const { width, height } = geometry;
  const mask = filled(width, height, (y) => (y < rows ? [255, 255, 255] : [0, 0, 0]));
  const source = { ...ref, data: ref.data.map((value, at) => (mask.data[at] === 0 ? value : UNKNOWN[at % 3])) };
  return { ...style, word, prompt: promptOf(word), images: { source, mask, ref } };
}

/** Raises ConfigError when the widest word does not fit on a sign. */
export function checkSigns({ geometry, letters }: Omit<SignWorld, 'seed' | 'sizes'>): void {
  const { width } = geometry;
  // The word must end above the strip, with as much paper above it as below.
  const rows = 2 * wordRows(geometry) - paperRows(geometry);
  const words = [...ALPHABET].map((name) => name.repeat(letters));
  const sizes = words.map((word) => wordSize(word, letterHeight(geometry), SPACING));
  const [wide, high] = [Math.max(...sizes.map((size) => size.width)), Math.max(...sizes.map((size) => size.height))];
  if (wide <= width && high <= rows) return;
  const widest = words[sizes.findIndex((size) => size.width === wide)];
  throw new ConfigError(`'${widest}' needs ${wide}x${high} pixels, but only ${width}x${rows} are available`, {
    where: 'data.tiny',
    next: 'Choose larger or wider signs (width, height) or fewer letters (letters).',
  });
}

/** The signs of each split. */
export const signData = tinyDataset<TinySignSettings, SignWorld>({
  things: 'signs',
  name: 'signs',
  optionsOf: signWorld,
  entryOf: ({ seed, geometry, letters, labelledInk, sizes }) => {
    const { width, height } = geometry;
    const { labelled, train, validation } = sizes;
    const made = { seed, geometry: { width, height }, spacing: SPACING, letters, alphabet: ALPHABET, labelledInk };
    return { ...made, sizes: { labelled, train, validation } };
  },
  check: checkSigns,
  write: async (folder, world) => {
    for (const split of SIGN_SPLITS) writeSplit(join(folder, 'signs', split), world, split);
  },
});

function writeSplit(folder: string, world: SignWorld, split: SignSplit): void {
  mkdirSync(folder, { recursive: true });
  const [lines, sums]: [string[], string[]] = [[], []];
  for (let index = 0; index < world.sizes[split]; index++) {
    const { prompt, images } = drawSignScene(world, split, index);
    const number = String(index + 1);
    lines.push(`${number} ${prompt}\n`);
    for (const [member, image] of Object.entries(images)) {
      const name = memberName(number, member as Member);
      const png = encodePlainPng(image);
      writeFileSync(join(folder, name), png);
      sums.push(`${sha256(png)}  ${name}\n`);
    }
  }
  writeFileAtomic(join(folder, SUMS_NAME), sums.join(''));
  writeFileAtomic(join(folder, SELF_BENCH_NAME), lines.join(''));
}
