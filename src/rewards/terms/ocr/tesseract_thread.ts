/**
 * One thread of tesseract.js, controlled by the messages of its worker script. Its own `createWorker` does not fit a long run: if a thread
 * cannot be prepared, it neither settles nor ends the thread, and a thread that dies ends the process.
 */
import { createRequire } from 'node:module';
import { Worker } from 'node:worker_threads';
import { EngineError } from '../../../core/errors.js';
import type { GrayImage } from './enlarge.js';
import type { OcrLine } from './engine.js';

/** One language, in the form for worker threads. */
export interface LanguageData {
  readonly code: string;
  /** An unpacked `traineddata` file. */
  readonly data: Uint8Array;
}

/** Lines of a page in no particular order: finds words anywhere on an image, which a page layout would miss. */
const SPARSE_TEXT = '11';
/** Engine mode: the neural recognizer alone. The package's data contains no other. */
const LSTM_ONLY = 1;

interface Reply {
  readonly jobId: string;
  readonly status: 'resolve' | 'reject' | 'progress';
  readonly data: unknown;
}

interface Box {
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
}

interface Page {
  readonly blocks: readonly { readonly paragraphs: readonly { readonly lines: readonly PageLine[] }[] }[] | null;
}

interface PageLine {
  readonly text: string;
  /** From 0 to 100. */
  readonly confidence: number;
  readonly bbox: Box;
}

interface Pending {
  resolve(data: unknown): void;
  reject(error: EngineError): void;
}

/** Keeps the process alive only while a request waits. */
export class TesseractThread {
  readonly #worker: Worker;
  readonly #pending = new Map<string, Pending>();
  #jobs = 0;
  #dead: EngineError | null = null;

  private constructor() {
    const script = createRequire(import.meta.url).resolve('tesseract.js/src/worker-script/node/index.js');
    this.#worker = new Worker(script, { stdout: true, stderr: true });
    // Tesseract logs thousands of warnings there. Important messages come as replies.
    this.#worker.stdout.resume();
    this.#worker.stderr.resume();
    this.#worker.on('message', (reply: Reply) => this.#settle(reply));
    this.#worker.on('error', (cause) => this.#fail(`the thread failed: ${cause.message}`, cause));
    this.#worker.on('messageerror', (cause) =>
      this.#fail(`the thread's reply cannot be read: ${cause.message}`, cause),
    );
    this.#worker.on('exit', (code) => this.#fail(`the thread ended (exit code ${code})`));
    this.#worker.unref();
  }

  /** A thread that is ready to read. Raises EngineError if it cannot be prepared, for example with broken language data. */
  static async start(languages: readonly LanguageData[]): Promise<TesseractThread> {
    const thread = new TesseractThread();
    try {
      await thread.#ask('load', { options: { lstmOnly: true, corePath: null, logging: false } });
      const options = { cacheMethod: 'none', gzip: false, lstmOnly: true };
      await thread.#ask('loadLanguage', { langs: languages, options });
      await thread.#ask('initialize', {
        langs: languages.map(({ code }) => code).join('+'),
        oem: LSTM_ONLY,
        config: {},
      });
      // A fixed resolution: guessed resolutions differ from image to image.
      await thread.#ask('setParameters', { params: { tessedit_pageseg_mode: SPARSE_TEXT, user_defined_dpi: '300' } });
      return thread;
    } catch (error) {
      await thread.end();
      throw error;
    }
  }

  get dead(): boolean {
    return this.#dead !== null;
  }

  /** The lines of an image from the top, then from the left. Raises EngineError if the thread cannot read it, or ends. */
  async read(image: GrayImage): Promise<readonly OcrLine[]> {
    const header = Buffer.from(`P5\n${image.width} ${image.height}\n255\n`, 'latin1');
    const page = (await this.#ask('recognize', {
      image: new Uint8Array(Buffer.concat([header, image.data])),
      options: {},
      output: { text: false, blocks: true },
    })) as Page;
    return (page.blocks ?? [])
      .flatMap(({ paragraphs }) => paragraphs.flatMap(({ lines }) => lines))
      .sort((a, b) => a.bbox.y0 - b.bbox.y0 || a.bbox.x0 - b.bbox.x0)
      .map(({ text, confidence }) => ({ text: text.trim(), confidence: Math.min(1, Math.max(0, confidence / 100)) }))
      .filter(({ text }) => text !== '');
  }

  /** Ends the thread at once. Its open requests reject. */
  async end(): Promise<void> {
    this.#fail('the thread was ended');
    await this.#worker.terminate();
  }

  #ask(action: string, payload: unknown): Promise<unknown> {
    if (this.#dead !== null) return Promise.reject(this.#dead);
    const jobId = `${action}-${this.#jobs++}`;
    return new Promise((resolve, reject) => {
      this.#pending.set(jobId, { resolve, reject });
      this.#worker.ref();
      this.#worker.postMessage({ workerId: 'ocr', jobId, action, payload });
    });
  }

  /** A job may get more than one reply. The first one counts. */
  #settle({ jobId, status, data }: Reply): void {
    const pending = this.#pending.get(jobId);
    if (pending === undefined || status === 'progress') return;
    this.#pending.delete(jobId);
    if (this.#pending.size === 0) this.#worker.unref();
    if (status === 'resolve') pending.resolve(data);
    else pending.reject(new EngineError(`tesseract: ${String(data)}`));
  }

  #fail(what: string, cause?: unknown): void {
    this.#dead ??= new EngineError(`tesseract: ${what}`, { cause });
    for (const pending of this.#pending.values()) pending.reject(this.#dead);
    this.#pending.clear();
  }
}
