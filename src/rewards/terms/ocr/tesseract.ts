/** Tesseract (tesseract.js, WebAssembly) on a pool of threads. */
import { EngineError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/image.js';
import { enlargedGrey } from './enlarge.js';
import type { OcrEngine, OcrReading } from './engine.js';
import { loadLanguages, type LanguageData } from './language_data.js';
import { TesseractThread } from './tesseract_thread.js';
import { Turns } from './turns.js';

export interface TesseractOptions {
  readonly language: string;
  readonly languageData: string | null;
  readonly workers: number;
  /** How long one image may take before its thread counts as stuck, in milliseconds. */
  readonly readTimeoutMs?: number;
  /** Starts a thread; default: one of tesseract.js. */
  readonly start?: (languages: readonly LanguageData[]) => Promise<ReadingThread>;
}

/** Reads one image at a time, and may die. */
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
    const grey = await enlargedGrey(image);
    return this.#slots.take(async (slot) => {
      const thread = await this.#threadOf(slot);
      signal?.throwIfAborted();
      try {
        return { lines: await within(thread.read(grey), this.#readTimeoutMs, signal) };
      } catch (error) {
        // A thread that was given up on still reads, and one that failed may be in any state: the next image gets a fresh one.
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
        // A thread that failed to start has already ended; its caller was told.
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

/** Starts all threads. Raises ConfigError for language data that is not there, EngineError where a thread cannot be prepared. */
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
