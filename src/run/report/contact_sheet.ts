/** The contact sheet: prompts, the policy's answers, the labels and the scores. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import sharp, { type OutputInfo, type OverlayOptions } from 'sharp';
import { must } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import type { RgbImage } from '../../core/images/image.js';
import { readPlain } from '../../core/plain_file.js';
import { iterationName, parseIterationName, type RunPaths } from '../paths.js';
import { drawSheet, escapeMarkup, FONT, INK, loadFont, MUTED } from './svg.js';

export interface ContactSheetRow {
  readonly instruction: string;
  readonly source: RgbImage | null;
  /** Null if the answer does not decode to an image. */
  readonly edit: RgbImage | null;
  /** Null if the data has no labeled result. */
  readonly truth: RgbImage | null;
  /** The score as text, such as `7.4`. */
  readonly score: string;
  /** The text answer. Null for answers that are only images. */
  readonly words: Pick<WordSheetRow, 'thought' | 'answer' | 'expected'> | null;
}

const LINE = '#dfe3e8';
const EMPTY = '#f2f4f6';
const TILE = 128;
const GAP = 12;
const TEXT_WIDTH = 190;
const MARGIN = 28;
const HEAD = 34;
const BLOCK_GAP = 36;
const BLOCK_WIDTH = TEXT_WIDTH + 3 * (TILE + GAP);
const ROW_HEIGHT = TILE + 20;
/** Sheets with more rows have two columns. */
const ONE_COLUMN_ROWS = 8;

/** Writes the sheet as PNG with a caption. Writes a sheet of words if no answer is an image and all have words. */
export async function writeContactSheet(path: string, rows: readonly ContactSheetRow[], caption = ''): Promise<void> {
  const wordRows = rows.flatMap(({ instruction: prompt, score, source, edit, words }) =>
    words === null || edit !== null ? [] : { prompt, score, ...words, image: source },
  );
  return wordRows.length === rows.length
    ? writeWordSheet(path, wordRows, caption)
    : writeImageSheet(path, rows, caption);
}

const KINDS = ['source', 'edit', 'truth'] as const;

/** The columns of a sheet. Images made from text alone have no source and no labeled result. */
function shownOf(rows: readonly ContactSheetRow[]): {
  readonly kinds: readonly (typeof KINDS)[number][];
  readonly textWidth: number;
} {
  const fromWords = rows.every(({ source, truth }) => source === null && truth === null);
  const kinds = fromWords ? (['edit'] as const) : KINDS;
  return { kinds, textWidth: TEXT_WIDTH + (KINDS.length - kinds.length) * (TILE + GAP) };
}

/** Enlarges small images by whole factors without smoothing, so that pixels stay visible. */
async function writeImageSheet(path: string, rows: readonly ContactSheetRow[], caption: string): Promise<void> {
  const { kinds, textWidth } = shownOf(rows);
  const columns = rows.length > ONE_COLUMN_ROWS ? 2 : 1;
  const perColumn = Math.ceil(rows.length / columns);
  const width = 2 * MARGIN + columns * BLOCK_WIDTH - GAP + (columns - 1) * BLOCK_GAP;
  const height = 2 * MARGIN + HEAD + perColumn * ROW_HEIGHT;
  const body: string[] = [];
  const overlays: Promise<OverlayOptions>[] = [];
  await loadFont();
  rows.forEach((row, index) => {
    const x = MARGIN + Math.floor(index / perColumn) * (BLOCK_WIDTH + BLOCK_GAP);
    const y = MARGIN + HEAD + (index % perColumn) * ROW_HEIGHT;
    const heads = index % perColumn === 0;
    const edits = kinds.length > 1;
    if (heads) body.push(label(x, MARGIN + 14, edits ? 'score and instruction' : 'score and prompt', 'start'));
    body.push(`<path d="M${x} ${y - 10}h${BLOCK_WIDTH - GAP}" stroke="${LINE}"/>`);
    overlays.push(description(row, x, y, textWidth));
    kinds.forEach((kind, tile) => {
      const left = x + textWidth + tile * (TILE + GAP);
      const middle = left + TILE / 2;
      if (heads) body.push(label(middle, MARGIN + 14, edits ? kind : 'image', 'middle'));
      // A pale tile with a frame just outside the image's area.
      const box = `x="${left - 0.5}" y="${y - 0.5}" width="${TILE + 1}" height="${TILE + 1}"`;
      body.push(`<rect ${box} fill="${EMPTY}" stroke="${LINE}"/>`);
      const image = row[kind];
      if (image !== null) overlays.push(fitted(image, left, y));
      else body.push(label(middle, y + TILE / 2 + 5, kind === 'edit' ? 'no image' : 'none given', 'middle'));
    });
  });
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${body.join('')}</svg>`;
  writeFileAtomic(path, await drawSheet(svg, overlays, caption));
}

function label(x: number, y: number, words: string, anchor: 'start' | 'middle'): string {
  const font = `font-family="${FONT}" font-size="13" font-weight="bold" fill="${MUTED}"`;
  return `<text x="${x}" y="${y}" text-anchor="${anchor}" ${font}>${words}</text>`;
}

/** The score, and below it the instruction in the height of a tile. Long instructions get a smaller font. */
async function description(row: ContactSheetRow, left: number, top: number, width: number): Promise<OverlayOptions> {
  // Truncated, so that the rest stays readable.
  const instruction = row.instruction.replace(/^(.{240}).+$/su, '$1…');
  // Score and instruction are one text: text without visible characters cannot be drawn, and an instruction may have
  // none.
  const score = `<span size="125%" weight="bold">${escapeMarkup(row.score)}</span>`;
  const text = `<span foreground="${INK}">${score}\n${escapeMarkup(instruction)}</span>`;
  const options = {
    text,
    font: `${FONT} 14`,
    rgba: true,
    width: width - 18,
    wrap: 'word-char',
    spacing: 4,
  } as const;
  const draw = (limit: { height?: number }): Promise<{ data: Buffer; info: OutputInfo }> =>
    sharp({ text: { ...options, ...limit } })
      .png()
      .toBuffer({ resolveWithObject: true });
  const natural = await draw({});
  const { data: input } = natural.info.height <= TILE ? natural : await draw({ height: TILE });
  return { input, left, top };
}

/** Centers an image in a square tile. A small one is enlarged by a whole factor. */
export async function fitted(image: RgbImage, left: number, top: number, side = TILE): Promise<OverlayOptions> {
  const exact = Math.min(side / image.width, side / image.height);
  const scale = exact >= 1 ? Math.floor(exact) : exact;
  const width = Math.max(1, Math.round(image.width * scale));
  const height = Math.max(1, Math.round(image.height * scale));
  const input = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .resize(width, height, { kernel: exact >= 1 ? 'nearest' : 'lanczos3', fit: 'fill' })
    .png()
    .toBuffer();
  return { input, left: left + Math.round((side - width) / 2), top: top + Math.round((side - height) / 2) };
}

export interface WordSheetRow {
  /** The score as text, such as `0.62`. */
  readonly score: string;
  readonly prompt: string;
  /** Null if the answer has no thought. */
  readonly thought: string | null;
  readonly answer: string;
  /** Null if the data has no labeled answer. */
  readonly expected: string | null;
  /** The image in the prompt. Null if there is none. */
  readonly image: RgbImage | null;
}

const WORD_HEAD = 30;
const WORD_GAP = 24;
const ROW_GAP = 26;
/** Maximum height in pixels of images, which are placed below the words. */
const IMAGE_HEIGHT = 120;
const IMAGE_GAP = 8;
/** Longer texts are cut in the middle, so that their beginning and end stay visible. */
const MAX_CHARACTERS = 700;

interface Column {
  readonly title: string;
  readonly width: number;
  /** Pango markup. */
  readonly text: (row: WordSheetRow) => string;
}

const plain = (text: string): string => `<span foreground="${INK}">${escapeMarkup(cut(text))}</span>`;
const pale = (text: string): string => `<span foreground="${MUTED}" style="italic">${escapeMarkup(cut(text))}</span>`;
/** Replaces text without visible characters, which cannot be drawn, by `none`. */
const shown = (text: string, none: string): string => (/\S/.test(clean(text)) ? plain(text) : pale(none));

const COLUMNS: readonly Column[] = [
  {
    title: 'score',
    width: 84,
    text: ({ score }) => `<span foreground="${INK}" weight="bold" size="115%">${escapeMarkup(score)}</span>`,
  },
  { title: 'prompt', width: 300, text: ({ prompt }) => shown(prompt, 'no words') },
  {
    title: 'answer',
    width: 380,
    text: ({ thought, answer }) =>
      `${thought === null || !/\S/.test(clean(thought)) ? '' : `${pale(thought)}\n`}${shown(answer, 'no answer')}`,
  },
  {
    title: 'expected',
    width: 240,
    text: ({ expected }) => (expected === null ? pale('none given') : shown(expected, 'no words')),
  },
];

/** Writes the sheet as PNG. The longest text of a row determines its height. */
export async function writeWordSheet(path: string, rows: readonly WordSheetRow[], caption = ''): Promise<void> {
  await loadFont();
  const lefts = COLUMNS.map(
    (_, at) => MARGIN + COLUMNS.slice(0, at).reduce((sum, { width }) => sum + width + WORD_GAP, 0),
  );
  const inner = COLUMNS.reduce((sum, { width }) => sum + width + WORD_GAP, -WORD_GAP);
  const body = COLUMNS.map(({ title }, at) => heading(lefts[at], MARGIN + 14, title));
  const overlays: OverlayOptions[] = [];
  let top = MARGIN + WORD_HEAD;
  for (const row of rows) {
    const cells = await Promise.all(COLUMNS.map(({ width, text }) => drawn(text(row), width)));
    body.push(`<path d="M${MARGIN} ${top - ROW_GAP / 2 + 4.5}h${inner}" stroke="${LINE}"/>`);
    overlays.push(...cells.map(({ data: input }, at) => ({ input, left: lefts[at], top: top + 4 })));
    top += Math.max(...cells.map(({ info }) => info.height)) + ROW_GAP;
    if (row.image === null) continue;
    const [left] = lefts.slice(1);
    const { data: input, info } = await fittedBelow(row.image, MARGIN + inner - left);
    overlays.push({ input, left, top: top - ROW_GAP + 4 + IMAGE_GAP });
    top += IMAGE_GAP + info.height;
  }
  const size = `width="${2 * MARGIN + inner}" height="${top + MARGIN - ROW_GAP + 8}"`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${body.join('')}</svg>`;
  writeFileAtomic(path, await drawSheet(svg, overlays, caption));
}

async function drawn(text: string, width: number): Promise<{ data: Buffer; info: OutputInfo }> {
  const draw = (markup: string): Promise<{ data: Buffer; info: OutputInfo }> =>
    sharp({ text: { text: markup, font: `${FONT} 14`, rgba: true, width, wrap: 'word-char', spacing: 4 } })
      .png()
      .toBuffer({ resolveWithObject: true });
  // Other characters may be invisible, too. A text with only those cannot be drawn, and a policy may write one.
  return draw(text).catch(() => draw(pale('cannot be drawn')));
}

/** Resizes an image without smoothing small ones. */
function fittedBelow({ width, height, data }: RgbImage, most: number): Promise<{ data: Buffer; info: OutputInfo }> {
  return sharp(data, { raw: { width, height, channels: 3 } })
    .resize({ width: most, height: IMAGE_HEIGHT, fit: 'inside', withoutEnlargement: true })
    .png()
    .toBuffer({ resolveWithObject: true });
}

function heading(x: number, y: number, words: string): string {
  const font = `font-family="${FONT}" font-size="13" font-weight="bold" fill="${MUTED}"`;
  return `<text x="${x}" y="${y}" ${font}>${words}</text>`;
}

/** Removes characters that cannot be drawn. */
function clean(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]+/gu, ' ');
}

function cut(text: string): string {
  const characters = [...clean(text).trim()];
  if (characters.length <= MAX_CHARACTERS) return characters.join('');
  const half = MAX_CHARACTERS / 2;
  return `${characters.slice(0, half).join('')} … ${characters.slice(-half).join('')}`;
}

export interface SavedSheet {
  readonly iteration: number;
  readonly path: string;
}

/**
 * Draws and saves the sheet of an evaluation. `manner` is the sampling mode of its answers. Raises RunError when the
 * disk refuses.
 */
export async function saveContactSheet(
  paths: RunPaths,
  { iteration, manner }: { readonly iteration: number; readonly manner: string },
  rows: readonly ContactSheetRow[],
): Promise<void> {
  const path = sheetPath(paths, iteration);
  await writeContactSheet(path, rows, `${paths.runName}, iteration ${iteration}: held-out answers, ${manner}`);
  writeFileAtomic(paths.contactSheet, must(readPlain(path), path));
}

/** The sheets of a run's evaluations, oldest first. */
export function contactSheets(paths: RunPaths): SavedSheet[] {
  if (!existsSync(paths.contactSheetsDir)) return [];
  return readdirSync(paths.contactSheetsDir)
    .flatMap((name) => {
      const iteration = parseIterationName(/^(\d+)\.png$/.exec(name)?.[1] ?? '');
      return iteration === null ? [] : [{ iteration, path: join(paths.contactSheetsDir, name) }];
    })
    .sort((a, b) => a.iteration - b.iteration);
}

/** The first, the middle and the last sheet, or fewer if there are fewer. */
export function startMiddleEnd(sheets: readonly SavedSheet[]): SavedSheet[] {
  const [first, last] = [sheets.at(0), sheets.at(-1)];
  if (first === undefined || last === undefined) return [];
  const middle = (first.iteration + last.iteration) / 2;
  const nearest = sheets.reduce((best, sheet) =>
    Math.abs(sheet.iteration - middle) < Math.abs(best.iteration - middle) ? sheet : best,
  );
  return [...new Set([first, nearest, last])];
}

function sheetPath(paths: RunPaths, iteration: number): string {
  return join(paths.contactSheetsDir, `${iterationName(iteration)}.png`);
}
