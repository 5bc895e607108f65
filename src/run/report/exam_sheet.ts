/** Draws some cases of an exam with the judge's score of each edit as an image. */
import sharp, { type OverlayOptions } from 'sharp';
import type { RgbImage } from '../../core/images/image.js';
import type { ExamCase } from '../../rewards/exam/cases.js';
import type { ExamCaseRecord } from '../exams.js';
import { fitted } from './contact_sheet.js';
import { drawSheet, escapeMarkup, FONT, INK, loadFont, MUTED } from './svg.js';

const TILE = 96;
const GAP = 14;
const TEXT_WIDTH = 170;
const MARGIN = 28;
const HEAD = 30;
const ROW_HEIGHT = TILE + 34;

export interface ShownCase {
  readonly exam: ExamCase;
  readonly record: ExamCaseRecord;
}

/** A case's images by their column titles: its source, then its answers. */
function imagesOf({ source, answers }: ExamCase): [string, RgbImage][] {
  const shown = [{ name: 'source', made: source }, ...answers];
  return shown.flatMap(({ name, made }): [string, RgbImage][] =>
    made === null || typeof made === 'string' ? [] : [[name, made]],
  );
}

/** A PNG with one case per line: its source and its answers side by side, with their mean scores (0 to 1) below. */
export async function drawExamSheet(cases: readonly ShownCase[], caption: string): Promise<Uint8Array> {
  await loadFont();
  const columns = imagesOf(cases[0].exam).map(([name]) => name);
  const width = 2 * MARGIN + TEXT_WIDTH + columns.length * (TILE + GAP) - GAP;
  const height = 2 * MARGIN + HEAD + cases.length * ROW_HEIGHT;
  const left = (column: number): number => MARGIN + TEXT_WIDTH + column * (TILE + GAP);
  const body = columns.map((name, column) => words(left(column) + TILE / 2, MARGIN + 14, name.replaceAll('_', ' ')));
  const overlays: Promise<OverlayOptions>[] = [];
  cases.forEach(({ exam, record }, row) => {
    const top = MARGIN + HEAD + row * ROW_HEIGHT;
    overlays.push(instruction(exam.instruction, top));
    imagesOf(exam).forEach(([name, image], at) => {
      overlays.push(fitted(image, left(at), top, TILE));
      if (!(name in record.scores)) return;
      const score = record.scores[name];
      body.push(words(left(at) + TILE / 2, top + TILE + 18, score === null ? 'no score' : score.toFixed(2), INK));
    });
  });
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${body.join('')}</svg>`;
  return drawSheet(svg, overlays, caption);
}

function words(x: number, y: number, text: string, fill = MUTED): string {
  const font = `font-family="${FONT}" font-size="13" font-weight="bold" fill="${fill}"`;
  return `<text x="${x}" y="${y}" text-anchor="middle" ${font}>${escapeMarkup(text)}</text>`;
}

async function instruction(prompt: string, top: number): Promise<OverlayOptions> {
  const text = `<span foreground="${INK}">${escapeMarkup(prompt.replace(/^(.{160}).+$/su, '$1…'))}</span>`;
  const input = await sharp({
    text: { text, font: `${FONT} 13`, rgba: true, width: TEXT_WIDTH - 18, wrap: 'word-char', spacing: 4 },
  })
    .png()
    .toBuffer();
  return { input, left: MARGIN, top };
}
