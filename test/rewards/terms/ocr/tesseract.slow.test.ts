import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { ConfigError, EngineError, must } from '../../../../src/core/errors.js';
import { enlargement } from '../../../../src/rewards/terms/ocr/enlarge.js';
import { loadLanguages, openTesseract, type ReadingThread } from '../../../../src/rewards/terms/ocr/tesseract.js';
import { joinLines } from '../../../../src/rewards/terms/ocr/similarity.js';
import { TesseractThread } from '../../../../src/rewards/terms/ocr/tesseract_thread.js';
import { drawSign } from '../../../../src/data/tiny/signs.js';

const english = { language: 'eng', languageData: null, workers: 1 };
const folder = mkdtempSync(join(tmpdir(), 'editrl-ocr-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** An engine whose threads can be killed from outside. */
async function withThreads() {
  const threads: ReadingThread[] = [];
  const engine = await openTesseract({
    ...english,
    start: async (languages) => {
      const thread = await TesseractThread.start(languages);
      threads.push(thread);
      return thread;
    },
  });
  return { engine, threads };
}

describe('the pool of threads', () => {
  it('replaces a thread that died while it was idle', async () => {
    const { engine, threads } = await withThreads();
    await threads[0].end();
    expect(joinLines((await engine.read(drawSign('AGAIN'))).lines)).toBe('again');
    expect(threads).toHaveLength(2);
    await engine.close();
  });

  it('rejects what a thread read when it died, and reads the next image on a fresh one', async () => {
    const { engine, threads } = await withThreads();
    const read = threads[0].read.bind(threads[0]);
    threads[0].read = (image) => {
      const reading = read(image);
      void threads[0].end();
      return reading;
    };
    await expect(engine.read(drawSign('LOST'))).rejects.toThrow(EngineError);
    expect(joinLines((await engine.read(drawSign('NEXT'))).lines)).toBe('next');
    expect(threads).toHaveLength(2);
    await engine.close();
  });

  /** A thread without tesseract behind it. */
  const fake = (read: ReadingThread['read'], dead = false) => {
    const thread = { dead, read, end: async () => void (thread.dead = true) };
    return thread;
  };
  const lines = [{ text: 'READ', confidence: 1 }];

  it('gives up a thread that is stuck', async () => {
    const threads = [fake(() => new Promise(() => undefined)), fake(async () => lines)];
    const [stuck] = threads;
    const engine = await openTesseract({
      ...english,
      readTimeoutMs: 100,
      start: async () => must(threads.shift(), 'another thread'),
    });
    await expect(engine.read(drawSign('STUCK'))).rejects.toThrow('no reading within 0.1 s');
    expect(stuck.dead).toBe(true);
    expect(await engine.read(drawSign('FREE'))).toEqual({ lines });
    await engine.close();
  });

  it('leaves nothing running where its threads cannot be prepared', async () => {
    writeFileSync(join(folder, 'bad.traineddata.gz'), gzipSync('this is no language'));
    const started = openTesseract({ language: 'bad', languageData: folder, workers: 2 });
    await expect(started).rejects.toThrow(EngineError);
  });
});

describe('language data', () => {
  it('comes from the package wherever the program is started', () => {
    const [{ code, data }] = loadLanguages('eng', null);
    expect(code).toBe('eng');
    expect(data.length).toBeGreaterThan(1_000_000);
  });

  it('comes from a folder, packed or not, several at once', () => {
    writeFileSync(join(folder, 'one.traineddata'), 'first');
    writeFileSync(join(folder, 'two.traineddata.gz'), gzipSync('second'));
    const texts = loadLanguages('one+two', folder).map(({ code, data }) => [code, Buffer.from(data).toString()]);
    expect(texts).toEqual([
      ['one', 'first'],
      ['two', 'second'],
    ]);
  });

  it.each([
    ['no such package', 'xxx', null, 'npm install @tesseract.js-data/xxx'],
    ['no such file', 'xxx', folder, 'leave language_data out'],
    ['a package that lacks one of two', 'eng+xxx', null, 'npm install @tesseract.js-data/xxx'],
  ])('explains what to do about %s', (_, language, from, next) => {
    expect(() => loadLanguages(language, from)).toThrow(ConfigError);
    expect(() => loadLanguages(language, from)).toThrow(
      expect.objectContaining({ next: expect.stringContaining(next) as string }) as Error,
    );
  });

  it('rejects a file that is cut off', () => {
    writeFileSync(join(folder, 'cut.traineddata.gz'), gzipSync(Buffer.alloc(100_000, 'abc')).subarray(0, 60));
    expect(() => loadLanguages('cut', folder)).toThrow(ConfigError);
  });
});

describe('enlarging', () => {
  it.each([
    [32, 32, 4],
    [64, 200, 4],
    [256, 256, 3],
    [512, 384, 2],
    [768, 768, 1],
    [1536, 100, 1],
    [3072, 1000, 0.5],
  ])('%d x %d by %d', (width, height, factor) => {
    expect(enlargement(width, height)).toBe(factor);
  });
});
