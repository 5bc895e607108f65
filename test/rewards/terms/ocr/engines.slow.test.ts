import { describe } from 'vitest';
import { openPaddle } from '../../../../src/rewards/terms/ocr/paddle/engine.js';
import { openTesseract } from '../../../../src/rewards/terms/ocr/tesseract.js';
import { ocrEngineContract } from './contract.js';

describe('tesseract', () => {
  ocrEngineContract((workers) => openTesseract({ language: 'eng', languageData: null, workers }));
});

/** A folder as src/rewards/ocr/paddle/layout.ts describes it; its models are too large to lie in the repository. */
const paddleFolder = process.env['EDITRL_PADDLEOCR_DIR'] ?? '';

describe.skipIf(paddleFolder === '')('paddle, from EDITRL_PADDLEOCR_DIR', () => {
  ocrEngineContract((workers) => openPaddle({ folder: paddleFolder, workers }));
});
