/** The contact sheet of answers in words: what the policy was asked, what it thought and said, the expected answer, and the score. */
import sharp, { type OutputInfo, type OverlayOptions } from 'sharp';
import { writeFileAtomic } from '../../core/files.js';
import type { RgbImage } from '../../core/image.js';
import { drawSheet } from './sheet_caption.js';
import { escapeMarkup, FONT, INK, loadFont, MUTED } from './svg.js';

export interface WordSheetRow {
  /** The score as shown, such as `0.62`. */
  readonly score: string;
  readonly prompt: string;
  /** Null if it did not think before it answered. */
  readonly thought: string | null;
  readonly answer: string;
  /** Null if the data has no labelled answer. */
  readonly expected: string | null;
  /** The picture shown with the prompt; null if there is none. */
  readonly picture: RgbImage | null;
}

const LINE = '#dfe3e8';
const MARGIN = 28;
const HEAD = 30;
const GAP = 24;
const ROW_GAP = 26;
/** Pictures are placed below the words, with at most this height. */
const PICTURE_HEIGHT = 120;
const PICTURE_GAP = 8;
/** Longer texts are cut in the middle, so that their beginning and end can be seen. */
const MOST_CHARACTERS = 700;

interface Column {
  readonly title: string;
  readonly width: number;
  /** Pango markup. */
  readonly text: (row: WordSheetRow) => string;
}

const plain = (text: string): string => `<span foreground="${INK}">${escapeMarkup(cut(text))}</span>`;
const pale = (text: string): string => `<span foreground="${MUTED}" style="italic">${escapeMarkup(cut(text))}</span>`;
/** A text without ink cannot be drawn; `none` tells the reader what is missing. */
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

/** Writes the sheet as PNG; every row is as high as its longest text. */
export async function writeWordSheet(path: string, rows: readonly WordSheetRow[], caption = ''): Promise<void> {
  await loadFont();
  const lefts = COLUMNS.map((_, at) => MARGIN + COLUMNS.slice(0, at).reduce((sum, { width }) => sum + width + GAP, 0));
  const inner = COLUMNS.reduce((sum, { width }) => sum + width + GAP, -GAP);
  const body = COLUMNS.map(({ title }, at) => heading(lefts[at], MARGIN + 14, title));
  const overlays: OverlayOptions[] = [];
  let top = MARGIN + HEAD;
  for (const row of rows) {
    const cells = await Promise.all(COLUMNS.map(({ width, text }) => drawn(text(row), width)));
    body.push(`<path d="M${MARGIN} ${top - ROW_GAP / 2 + 4.5}h${inner}" stroke="${LINE}"/>`);
    overlays.push(...cells.map(({ data: input }, at) => ({ input, left: lefts[at], top: top + 4 })));
    top += Math.max(...cells.map(({ info }) => info.height)) + ROW_GAP;
    if (row.picture === null) continue;
    const [left] = lefts.slice(1);
    const { data: input, info } = await fitted(row.picture, MARGIN + inner - left);
    overlays.push({ input, left, top: top - ROW_GAP + 4 + PICTURE_GAP });
    top += PICTURE_GAP + info.height;
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
  // Some other characters have no ink either, and a text of only those cannot be drawn; a policy may write them.
  return draw(text).catch(() => draw(pale('cannot be drawn')));
}

/** Small pictures are not smoothed. */
function fitted({ width, height, data }: RgbImage, most: number): Promise<{ data: Buffer; info: OutputInfo }> {
  return sharp(data, { raw: { width, height, channels: 3 } })
    .resize({ width: most, height: PICTURE_HEIGHT, fit: 'inside', withoutEnlargement: true })
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
  if (characters.length <= MOST_CHARACTERS) return characters.join('');
  const half = MOST_CHARACTERS / 2;
  return `${characters.slice(0, half).join('')} … ${characters.slice(-half).join('')}`;
}
