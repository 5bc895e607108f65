/** Tesseract (tesseract.js, WebAssembly) on a pool of threads. */
import { EngineError, ConfigError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/images/image.js';
import { enlargedGray } from './enlarge.js';
import { type OcrEngine, type OcrReading, Turns } from './engine.js';
import { TesseractThread } from './tesseract_thread.js';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { type LanguageData } from './tesseract_thread.js';

export interface TesseractOptions {
  readonly language: string;
  readonly languageData: string | null;
  readonly workers: number;
  /** The time limit of one image, after which its thread counts as stuck, in milliseconds. */
  readonly readTimeoutMs?: number;
  /** Starts a thread. Default: one of tesseract.js. */
  readonly start?: (languages: readonly LanguageData[]) => Promise<ReadingThread>;
}

/** A thread that reads one image at a time. It may crash. */
export type ReadingThread = Pick<TesseractThread, 'dead' | 'read' | 'end'>;

/** A place in the pool. Its thread is null after a failure, until the next image comes. */
interface Slot {
  thread: Promise<ReadingThread> | null;
}

class TesseractEngine implements OcrEngine {
  readonly #start: () => Promise<ReadingThread>;
  readonly #slots: Turns<Slot>;
  readonly #all: readonly Slot[];
  readonly #readTimeoutMs: number;
  #closed = false;

  constructor(start: () => Promise<ReadingThread>, threads: readonly ReadingThread[], readTimeoutMs: number) {
    this.#start = start;
    this.#all = threads.map((thread) => ({ thread: Promise.resolve(thread) }));
    this.#slots = new Turns(this.#all);
    this.#readTimeoutMs = readTimeoutMs;
  }

  async read(image: RgbImage, signal?: AbortSignal): Promise<OcrReading> {
    signal?.throwIfAborted();
    const gray = await enlargedGray(image);
    return this.#slots.take(async (slot) => {
      const thread = await this.#threadOf(slot);
      signal?.throwIfAborted();
      try {
        return { lines: await within(thread.read(gray), this.#readTimeoutMs, signal) };
      } catch (error) {
        // A thread after a timeout still reads, and a thread after a failure may be in any state: the next image gets a fresh one.
        slot.thread = null;
        await thread.end();
        throw error;
      }
    }, signal);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(
      this.#all.map(async ({ thread }) => {
        // A thread that failed to start has already ended, and its caller has the error.
        const started = await thread?.catch(() => null);
        await started?.end();
      }),
    );
  }

  async #threadOf(slot: Slot): Promise<ReadingThread> {
    if (this.#closed) throw new EngineError('tesseract: the engine is closed');
    const kept = await slot.thread;
    if (kept !== null && !kept.dead) return kept;
    const started = this.#start();
    slot.thread = started;
    try {
      return await started;
    } catch (error) {
      slot.thread = null;
      throw error;
    }
  }
}

/** The work's result, unless the signal or the time limit comes first. */
async function within<T>(work: Promise<T>, milliseconds: number, signal?: AbortSignal): Promise<T> {
  let give = (): void => undefined;
  const givenUp = new Promise<never>((_, reject) => {
    const timer = setTimeout(
      () => reject(new EngineError(`tesseract: no reading within ${milliseconds / 1000} s`)),
      milliseconds,
    );
    const abort = (): void => reject(signal?.reason as Error);
    signal?.addEventListener('abort', abort);
    give = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    };
  });
  try {
    return await Promise.race([work, givenUp]);
  } finally {
    give();
  }
}

/** Starts all threads. Raises ConfigError for missing language data, EngineError if a thread cannot be prepared. */
export async function openTesseract(options: TesseractOptions): Promise<OcrEngine> {
  const languages = loadLanguages(options.language, options.languageData);
  const { start = (data) => TesseractThread.start(data) } = options;
  const outcomes = await Promise.allSettled(Array.from({ length: options.workers }, () => start(languages)));
  const threads = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
  const failed = outcomes.find((outcome) => outcome.status === 'rejected');
  if (failed !== undefined) {
    await Promise.all(threads.map((thread) => thread.end()));
    throw failed.reason;
  }
  return new TesseractEngine(() => start(languages), threads, options.readTimeoutMs ?? 60_000);
}

/** The variant of the packages with the best recognizer, with integer weights. */
const VARIANT = '4.0.0_best_int';

/** Raises ConfigError for a language that neither the folder nor a package has, and for a file that is not complete. */
export function loadLanguages(language: string, folder: string | null): readonly LanguageData[] {
  return language.split('+').map((code) => ({ code, data: unpack(fileOf(code, folder)) }));
}

function fileOf(code: string, folder: string | null): string {
  const from = folder ?? packageFolder(code);
  const found = [`${code}.traineddata.gz`, `${code}.traineddata`].map((name) => join(from, name)).find(existsSync);
  if (found !== undefined) return found;
  throw new ConfigError(`there is no ${code}.traineddata or ${code}.traineddata.gz in ${from}`, {
    where: `language '${code}'`,
    next: 'Put the file there, or leave language_data out to take it from a package.',
  });
}

function packageFolder(code: string): string {
  const name = `@tesseract.js-data/${code}`;
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), VARIANT);
  } catch (cause) {
    throw new ConfigError(`the package ${name} is not installed`, {
      where: `language '${code}'`,
      next: `Run \`npm install ${name}\`, or set language_data to a folder with ${code}.traineddata.`,
      cause,
    });
  }
}

function unpack(file: string): Uint8Array {
  try {
    const bytes = readFileSync(file);
    return file.endsWith('.gz') ? gunzipSync(bytes) : bytes;
  } catch (cause) {
    throw new ConfigError(`cannot read the language data (${cause instanceof Error ? cause.message : String(cause)})`, {
      where: file,
      next: 'Install it again.',
      cause,
    });
  }
}
