/** The contact sheet: what the policy was asked, what it made of it, what it should have been, and the score. */
import sharp from 'sharp';
import type { RgbImage } from '../../core/image.js';
import { writeFileAtomic } from '../../core/files.js';
import { availableTextStyle, n, svgDocument, svgText, svgToPng, wrapText, type TextStyle } from './svg.js';

export interface ContactSheetRow {
  readonly instruction: string;
  readonly source: RgbImage | null;
  /** Null when the answer does not decode to an image. */
  readonly edit: RgbImage | null;
  /** Null where the data has no labelled result. */
  readonly truth: RgbImage | null;
  /** The score as it is to be read, such as `7.4`. */
  readonly score: string;
}

const INK = '#22272e';
const MUTED = '#5b6570';
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
/** More rows than this stand in two columns. */
const ONE_COLUMN_ROWS = 8;

interface Placed {
  readonly image: RgbImage;
  readonly x: number;
  readonly y: number;
}

/** Writes the sheet as PNG. Small images are enlarged by whole factors without smoothing, so that pixels stay visible. */
export async function writeContactSheet(
  path: string,
  rows: readonly ContactSheetRow[],
  style: TextStyle | undefined = undefined,
): Promise<void> {
  const text = style ?? (await availableTextStyle());
  const columns = rows.length > ONE_COLUMN_ROWS ? 2 : 1;
  const perColumn = Math.max(1, Math.ceil(rows.length / columns));
  const width = 2 * MARGIN + columns * BLOCK_WIDTH - GAP + (columns - 1) * BLOCK_GAP;
  const height = 2 * MARGIN + HEAD + perColumn * ROW_HEIGHT;
  const body: string[] = [];
  const images: Placed[] = [];
  for (let column = 0; column < columns; column++) {
    body.push(heading(text, MARGIN + column * (BLOCK_WIDTH + BLOCK_GAP), MARGIN + 14));
  }
  rows.forEach((row, index) => {
    const x = MARGIN + Math.floor(index / perColumn) * (BLOCK_WIDTH + BLOCK_GAP);
    const y = MARGIN + HEAD + (index % perColumn) * ROW_HEIGHT;
    body.push(`<path d="M${n(x)} ${n(y - 10)}h${n(BLOCK_WIDTH - GAP)}" stroke="${LINE}" stroke-width="1"/>`);
    body.push(description(text, row, x, y));
    [row.source, row.edit, row.truth].forEach((image, tile) => {
      const tileX = x + TEXT_WIDTH + tile * (TILE + GAP);
      body.push(tileGround(tileX, y));
      if (image === null) body.push(emptyLabel(text, tileX, y, tile === 1 ? 'no image' : 'none given'));
      else images.push({ image, x: tileX, y });
    });
  });
  const ground = await svgToPng(svgDocument(width, height, body.join('\n')), 1);
  const overlays = await Promise.all(images.map(fitted));
  writeFileAtomic(path, await sharp(ground).composite(overlays).png().toBuffer());
}

function heading(style: TextStyle, x: number, y: number): string {
  const options = { size: 13, color: MUTED, bold: true } as const;
  const titles = ['source', 'edit', 'truth'].map((title, tile) =>
    svgText(style, x + TEXT_WIDTH + tile * (TILE + GAP) + TILE / 2, y, title, { ...options, anchor: 'middle' }),
  );
  return [svgText(style, x, y, 'instruction and score', options), ...titles].join('\n');
}

function description(style: TextStyle, row: ContactSheetRow, x: number, y: number): string {
  const lines = wrapText(row.instruction, 14, TEXT_WIDTH - 18, 5);
  const out = lines.map((line, index) => svgText(style, x, y + 18 + index * 18, line, { size: 14, color: INK }));
  const score = wrapText(row.score, 16, TEXT_WIDTH - 18, 1)[0] ?? '';
  out.push(svgText(style, x, y + TILE - 4, score, { size: 16, color: INK, bold: true }));
  return out.join('\n');
}

/** A pale tile with a frame just outside of where an image is laid. */
function tileGround(x: number, y: number): string {
  const size = TILE + 1;
  return `<rect x="${n(x - 0.5)}" y="${n(y - 0.5)}" width="${size}" height="${size}" fill="${EMPTY}" stroke="${LINE}"/>`;
}

function emptyLabel(style: TextStyle, x: number, y: number, label: string): string {
  return svgText(style, x + TILE / 2, y + TILE / 2 + 5, label, { size: 13, color: MUTED, anchor: 'middle' });
}

async function fitted(placed: Placed): Promise<{ input: Buffer; left: number; top: number }> {
  const { image } = placed;
  const exact = Math.min(TILE / image.width, TILE / image.height);
  const scale = exact >= 1 ? Math.floor(exact) : exact;
  const width = Math.max(1, Math.round(image.width * scale));
  const height = Math.max(1, Math.round(image.height * scale));
  const input = await sharp(image.data, { raw: { width: image.width, height: image.height, channels: 3 } })
    .resize(width, height, { kernel: exact >= 1 ? 'nearest' : 'lanczos3', fit: 'fill' })
    .png()
    .toBuffer();
  const left = Math.round(placed.x + (TILE - width) / 2);
  return { input, left, top: Math.round(placed.y + (TILE - height) / 2) };
}
