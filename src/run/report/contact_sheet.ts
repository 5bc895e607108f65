/** The contact sheet: what the policy was asked, what it produced, what was expected, and the score. */
import sharp, { type OutputInfo, type OverlayOptions } from 'sharp';
import type { RgbImage } from '../../core/image.js';
import { writeFileAtomic } from '../../core/files.js';
import { drawSheet } from './sheet_caption.js';
import { escapeMarkup, FONT, INK, loadFont, MUTED } from './svg.js';
import { writeWordSheet, type WordSheetRow } from './word_sheet.js';

export interface ContactSheetRow {
  readonly instruction: string;
  readonly source: RgbImage | null;
  /** Null if the answer does not decode to an image. */
  readonly edit: RgbImage | null;
  /** Null if the data has no labelled result. */
  readonly truth: RgbImage | null;
  /** The score as shown, such as `7.4`. */
  readonly score: string;
  /** The answer in words, if it has any. */
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
/** More rows than this are laid out in two columns. */
const ONE_COLUMN_ROWS = 8;

/** Writes the sheet as PNG, under a caption; a sheet of words if no answer is an image and all have words. */
export async function writeContactSheet(path: string, rows: readonly ContactSheetRow[], caption = ''): Promise<void> {
  const said = rows.flatMap(({ instruction: prompt, score, source, edit, words }) =>
    words === null || edit !== null ? [] : { prompt, score, ...words, picture: source },
  );
  return said.length === rows.length ? writeWordSheet(path, said, caption) : writeImageSheet(path, rows, caption);
}

const KINDS = ['source', 'edit', 'truth'] as const;

/** Which columns a sheet shows: pictures made from words alone have neither a source nor a labelled result beside them. */
function shownOf(rows: readonly ContactSheetRow[]): {
  readonly kinds: readonly (typeof KINDS)[number][];
  readonly textWidth: number;
} {
  const fromWords = rows.every(({ source, truth }) => source === null && truth === null);
  const kinds = fromWords ? (['edit'] as const) : KINDS;
  return { kinds, textWidth: TEXT_WIDTH + (KINDS.length - kinds.length) * (TILE + GAP) };
}

/** Small images are enlarged by whole factors without smoothing, so that pixels stay visible. */
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
      if (heads) body.push(label(middle, MARGIN + 14, edits ? kind : 'picture', 'middle'));
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

/** The score, and below it the instruction, at most as high as a tile: longer ones are set smaller. */
async function description(row: ContactSheetRow, left: number, top: number, width: number): Promise<OverlayOptions> {
  // Cut, so that the rest stays readable.
  const instruction = row.instruction.replace(/^(.{240}).+$/su, '$1…');
  // One text with the score, because a text without ink cannot be drawn, and an instruction may be one.
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

/** Centres an image in a square tile; a small one is enlarged by a whole factor. */
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
