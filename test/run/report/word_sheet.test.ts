import { existsSync } from 'node:fs';
import { join } from 'node:path';
import sharp from 'sharp';
import { describe, expect, it } from 'vitest';
import { writeContactSheet, writeWordSheet, type WordSheetRow } from '../../../src/run/report/contact_sheet.js';
import { testFolder } from '../../support/folder.js';

const base = testFolder('word-sheet');
const row: WordSheetRow = {
  score: '0.62',
  prompt: 'a crimson orb',
  thought: null,
  answer: 'a red circle',
  expected: 'a red ball',
  image: null,
};

async function drawn(
  rows: readonly WordSheetRow[],
): Promise<{ height: number; ink: (left: number, right: number) => number }> {
  const path = join(base, 'sheet.png');
  await writeWordSheet(path, rows);
  const { data, info } = await sharp(path).greyscale().raw().toBuffer({ resolveWithObject: true });
  /** Dark pixels between two columns of pixels, below the headings. */
  const ink = (left: number, right: number): number => {
    let count = 0;
    for (let y = 56; y < info.height; y++) {
      for (let x = left; x < Math.min(right, info.width); x++) if (data[y * info.width + x] < 128) count += 1;
    }
    return count;
  };
  return { height: info.height, ink };
}
/** Where score, prompt, answer and expected begin, and the end. */
const [SCORE, PROMPT, ANSWER, EXPECTED, END] = [28, 136, 460, 864, 1104];

describe('the sheet of answers in words', () => {
  it('has each text in its column, and nothing beyond them', async () => {
    const { ink } = await drawn([row]);
    for (const [left, right] of [
      [SCORE, PROMPT],
      [PROMPT, ANSWER],
      [ANSWER, EXPECTED],
      [EXPECTED, END],
    ]) {
      expect(ink(left, right - 20)).toBeGreaterThan(40);
      expect(ink(right - 20, right)).toBe(0);
    }
    expect(ink(END, 2000)).toBe(0);
  });

  it('takes every text', async () => {
    const texts = [
      '',
      ' \n',
      '\u0000\u200b \ud800',
      'a <b> & c </span>',
      'x'.repeat(400),
      '😀 für 你',
      '\u2800',
      '\u3164',
    ];
    for (const text of texts) {
      const { ink } = await drawn([{ ...row, score: '0', prompt: text, thought: text, answer: text, expected: text }]);
      expect(ink(EXPECTED, END)).toBeGreaterThanOrEqual(0);
      expect(ink(END, 2000)).toBe(0);
    }
    expect((await drawn([{ ...row, expected: null }])).height).toBeGreaterThan(50);
  });

  it('is drawn where answers are words, and there are no images', async () => {
    const images = { source: null, edit: null, truth: null };
    const { thought, answer, expected } = row;
    const words = { instruction: 'a crimson orb', score: '1', ...images, words: { thought, answer, expected } };
    const path = join(base, 'contact.png');
    await writeContactSheet(path, [words]);
    expect(existsSync(path)).toBe(true);
    expect((await sharp(path).metadata()).width).toBe(END + 28);
    const edit = { width: 4, height: 4, data: new Uint8Array(48) };
    await writeContactSheet(path, [{ ...words, edit }]);
    expect((await sharp(path).metadata()).width).not.toBe(END + 28);
  });

  it('has what a prompt shows below its words, no wider than they are', async () => {
    const strip = (width: number) => ({ width, height: 60, data: new Uint8Array(width * 60 * 3) });
    const plain = await drawn([row, row]);
    const shows = await drawn([{ ...row, image: strip(300) }, row]);
    expect(shows.height).toBe(plain.height + 8 + 60);
    expect(shows.ink(PROMPT, END)).toBe(plain.ink(PROMPT, END) + 300 * 60);
    const wide = await drawn([{ ...row, image: strip(3000) }]);
    expect([wide.ink(EXPECTED, END) > 1000, wide.ink(SCORE, PROMPT - 1)]).toEqual([
      true,
      (await drawn([row])).ink(SCORE, PROMPT - 1),
    ]);
    expect(wide.ink(END, 2000)).toBe(0);
  });

  it('has the images of prompts that are answered in words on the contact sheet', async () => {
    const { thought, answer, expected } = row;
    const path = join(base, 'shows.png');
    const images = { source: { width: 60, height: 40, data: new Uint8Array(60 * 40 * 3) }, edit: null, truth: null };
    await writeContactSheet(path, [{ instruction: 'x', score: '1', ...images, words: { thought, answer, expected } }]);
    expect((await sharp(path).metadata()).width).toBe(END + 28);
    const alone = (await drawn([{ ...row, prompt: 'x', score: '1' }])).height;
    expect((await sharp(path).metadata()).height).toBe(alone + 8 + 40);
  });
});
