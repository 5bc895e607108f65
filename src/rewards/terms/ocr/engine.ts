/** Reads text from images, independent of the engine. */
import type { RgbImage } from '../../../core/images/image.js';
import { allowManyListeners } from '../../../core/clock.js';

/** One line of text as it was read. */
export interface OcrLine {
  readonly text: string;
  /** The engine's confidence in the line, in [0, 1]. */
  readonly confidence: number;
}

/** The lines that an image shows, in reading order. Empty if it shows no text. */
export interface OcrReading {
  readonly lines: readonly OcrLine[];
}

/** Reads images. Calls wait while every worker is busy. */
export interface OcrEngine {
  /** Rejects with the signal's reason once it is aborted, and with EngineError if the engine itself fails. The same pixels give the same reading. */
  read(image: RgbImage, signal?: AbortSignal): Promise<OcrReading>;
  /** Ends the engine. Readings in flight reject with EngineError. */
  close(): Promise<void>;
}

/** The settings of an engine. */
export interface OcrSettings {
  readonly backend: 'tesseract' | 'paddle';
  /** Tesseract's names of languages, joined by `+`, such as `eng` or `eng+deu`. */
  readonly language: string;
  /** Folder with `<language>.traineddata` or `.traineddata.gz`. Null takes it from the package `@tesseract.js-data/<language>`. */
  readonly languageData: string | null;
  /** Threads that read: with tesseract one per image, with paddle all for one image. */
  readonly workers: number;
  /** Folder of a PaddleOCR export (see paddle/layout.ts). Null with tesseract. */
  readonly model: string | null;
}

export class Turns<T extends object> {
  readonly #free: T[];
  readonly #waiting = new Set<(thing: T) => void>();

  constructor(things: readonly T[]) {
    this.#free = [...things];
  }

  /** Does the work with a free worker. Rejects with the signal's reason if that comes before its turn. */
  async take<R>(work: (thing: T) => Promise<R>, signal?: AbortSignal): Promise<R> {
    signal?.throwIfAborted();
    const thing = this.#free.pop() ?? (await this.#turn(signal));
    try {
      return await work(thing);
    } finally {
      this.#giveBack(thing);
    }
  }

  #turn(signal?: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        this.#waiting.delete(serve);
        reject(signal?.reason as Error);
      };
      const serve = (thing: T): void => {
        signal?.removeEventListener('abort', abort);
        resolve(thing);
      };
      this.#waiting.add(serve);
      if (signal === undefined) return;
      // A whole iteration may wait on one signal, which is not a leak.
      allowManyListeners(signal);
      signal.addEventListener('abort', abort, { once: true });
    });
  }

  #giveBack(thing: T): void {
    for (const next of this.#waiting) {
      this.#waiting.delete(next);
      next(thing);
      return;
    }
    this.#free.push(thing);
  }
}
