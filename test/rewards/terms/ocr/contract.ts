/** What every OCR engine has to do, run against each. */
import { setMaxListeners } from 'node:events';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { EngineError } from '../../../../src/core/errors.js';
import type { RgbImage } from '../../../../src/core/images/image.js';
import { RandomStream } from '../../../../src/core/random.js';
import type { OcrEngine, OcrReading } from '../../../../src/rewards/terms/ocr/engine.js';
import { joinLines, similarity, weightedConfidence } from '../../../../src/rewards/terms/ocr/similarity.js';
import { drawSign } from '../../../../src/data/tiny/signs.js';

function plain(width: number, height: number, level: number): RgbImage {
  return { width, height, data: new Uint8Array(width * height * 3).fill(level) };
}

function noise(width: number, height: number): RgbImage {
  const random = new RandomStream('noise', width, height);
  return { width, height, data: Uint8Array.from({ length: width * height * 3 }, () => random.integer(256)) };
}

const similarityOf = (word: string, { lines }: OcrReading): number => similarity(word.toLowerCase(), joinLines(lines));

export function ocrEngineContract(open: (workers: number) => Promise<OcrEngine>): void {
  let engine: OcrEngine;
  beforeAll(async () => {
    engine = await open(2);
  });
  afterAll(async () => {
    await engine.close();
  });

  it.each([['HELLO'], ['MARKET'], ['COFFEE 24'], ['OPEN']])('reads a drawn %s', async (word) => {
    const reading = await engine.read(drawSign(word, { size: 32 }));
    expect(similarityOf(word.replace(' ', ''), reading)).toBe(1);
    expect(weightedConfidence(reading.lines)).toBeGreaterThan(0.8);
  });

  it('reads light on dark and colored signs', async () => {
    const dark = drawSign('BAKERY', { size: 40, ink: [250, 250, 240], paper: [20, 30, 60] });
    const coloured = drawSign('EXIT', { size: 40, ink: [220, 36, 36], paper: [240, 230, 180] });
    expect(similarityOf('BAKERY', await engine.read(dark))).toBe(1);
    expect(similarityOf('EXIT', await engine.read(coloured))).toBe(1);
  });

  it('reads lines from top to bottom', async () => {
    const upper = drawSign('FIRST', { size: 40, width: 320, height: 90 });
    const lower = drawSign('SECOND', { size: 40, width: 320, height: 90 });
    const both = { width: 320, height: 180, data: new Uint8Array([...upper.data, ...lower.data]) };
    const { lines } = await engine.read(both);
    expect(joinLines(lines)).toBe('firstsecond');
  });

  it.each([
    ['a white image', plain(96, 64, 255)],
    ['a black image', plain(64, 64, 0)],
    ['a single pixel', plain(1, 1, 128)],
    ['a long strip', plain(400, 3, 200)],
  ])('reads nothing on %s', async (_, image) => {
    const reading = await engine.read(image);
    expect(similarityOf('HELLO', reading)).toBe(0);
    expect(weightedConfidence(reading.lines)).toBe(0);
  });

  it('takes noise without a word of complaint', async () => {
    const reading = await engine.read(noise(96, 96));
    for (const { confidence } of reading.lines) {
      expect(confidence).toBeGreaterThanOrEqual(0);
      expect(confidence).toBeLessThanOrEqual(1);
    }
  });

  it('keeps many readings at once apart, each the same as alone', async () => {
    const words = ['QUICK', 'BROWN', 'FOX', 'JUMPS', 'LAZY', 'DOG', 'SIGN', 'STOP'];
    const alone: OcrReading[] = [];
    for (const word of words) alone.push(await engine.read(drawSign(word)));
    const together = await Promise.all(words.map((word) => engine.read(drawSign(word))));
    expect(together).toEqual(alone);
    expect(together.map(({ lines }) => joinLines(lines))).toEqual(words.map((word) => word.toLowerCase()));
  });

  it('gives up what is aborted, before and while it is read, and continues with the rest', async () => {
    const gone = AbortSignal.abort(new Error('too late'));
    await expect(engine.read(drawSign('LATE'), gone)).rejects.toThrow('too late');
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const readings = Array.from({ length: 6 }, () => engine.read(noise(256, 256), controller.signal));
    const settled = Promise.allSettled(readings);
    setTimeout(() => controller.abort(new Error('enough')), 20);
    const outcomes = await settled;
    // The first two may be through before.
    for (const outcome of outcomes.slice(2)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { message: 'enough' } });
    }
    expect(similarityOf('AFTER', await engine.read(drawSign('AFTER')))).toBe(1);
  });

  it('rejects what comes after it was closed, and what is in flight then', async () => {
    const short = await open(1);
    const readings = Array.from({ length: 6 }, () => short.read(noise(256, 256)));
    const settled = Promise.allSettled(readings);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await short.close();
    // The first two may be through before.
    for (const outcome of (await settled).slice(2)) {
      expect(outcome.status === 'rejected' && outcome.reason instanceof EngineError).toBe(true);
    }
    await expect(short.read(drawSign('CLOSED'))).rejects.toThrow(EngineError);
    await short.close();
  });
}
