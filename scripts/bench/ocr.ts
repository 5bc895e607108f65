/** The cost of reading text, and its accuracy. */
import type { RgbImage } from '../../src/core/image.js';
import type { OcrEngine } from '../../src/rewards/terms/ocr/engine.js';
import { openPaddle } from '../../src/rewards/terms/ocr/paddle/engine.js';
import { joinLines, similarity, weightedConfidence } from '../../src/rewards/terms/ocr/similarity.js';
import { openTesseract } from '../../src/rewards/terms/ocr/tesseract.js';
import { drawSign } from '../../src/tiny/world/signs.js';

const IMAGES = 200;
const SIDE = 256;
const WORDS = [
  'HELLO',
  'OPEN',
  'MARKET',
  'COFFEE',
  'EXIT',
  'STOP',
  'BAKERY',
  'QUICK',
  'BROWN',
  'CLOSED',
  'ROOM 24',
  'TAXI',
];

interface Sign {
  readonly word: string;
  readonly image: RgbImage;
}

/** Signs of 256x256 pixels with letters of 16 to 36 pixels, dark on light and light on dark. */
function signs(): readonly Sign[] {
  return Array.from({ length: IMAGES }, (_, i) => {
    const word = WORDS[i % WORDS.length];
    const shade = 20 + (i % 60);
    const [dark, light] = [[shade, 20, 60] as const, [250, 230 - shade, 220] as const];
    const [ink, paper] = i % 3 === 0 ? [light, dark] : [dark, light];
    return { word, image: drawSign(word, { size: 16 + (i % 6) * 4, ink, paper, width: SIDE, height: SIDE }) };
  });
}

async function measure(label: string, open: () => Promise<OcrEngine>, images: readonly Sign[]): Promise<void> {
  const start = performance.now();
  const engine = await open();
  const started = performance.now();
  const cpu = process.cpuUsage();
  const readings = await Promise.all(images.map(({ image }) => engine.read(image)));
  const wall = performance.now() - started;
  const { user, system } = process.cpuUsage(cpu);
  await engine.close();
  const right = readings.filter(({ lines }, i) => {
    return similarity(images[i].word.replace(' ', '').toLowerCase(), joinLines(lines)) === 1;
  }).length;
  const confidence = readings.reduce((sum, { lines }) => sum + weightedConfidence(lines), 0) / readings.length;
  console.log(
    `${label}: start ${Math.round(started - start)} ms, ${(wall / images.length).toFixed(1)} ms an image ` +
      `(${((user + system) / 1000 / images.length).toFixed(1)} ms of CPU), ${right} of ${images.length} right, ` +
      `mean confidence ${confidence.toFixed(3)}`,
  );
}

/** Measures Tesseract and, if EDITRL_PADDLEOCR_DIR names an export, PaddleOCR, each with one and two workers. */
export async function benchOcr(): Promise<void> {
  const images = signs();
  const folder = process.env['EDITRL_PADDLEOCR_DIR'] ?? '';
  for (const workers of [1, 2]) {
    const label = `${workers} worker${workers === 1 ? '' : 's'}`;
    await measure(`tesseract, ${label}`, () => openTesseract({ language: 'eng', languageData: null, workers }), images);
    if (folder !== '') await measure(`paddle, ${label}`, () => openPaddle({ folder, workers }), images);
  }
}
