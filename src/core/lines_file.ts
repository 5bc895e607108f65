/** A file that grows by whole lines, written in order of arrival, in batches of whatever has gathered. */
import { readdirSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { open, rename, rm } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { diskError, makeFolder } from './files.js';

/** Called with what the disk refuses, and the number of lines lost by it, which may be 0. */
export type OnDiskError = (error: Error, lostLines: number) => void;

/** Lines that replace others, whether those are written yet or not. */
interface Replacement {
  readonly lines: Iterable<string>;
  readonly unwritten: readonly string[];
}

/** How much of a file that is written anew goes to the disk at once, in characters. */
const pieceSize = 1 << 20;

export interface LinesFileOptions {
  /**
   * Bytes after which the file is renamed to `NAME.000001.EXTENSION`, the next one to `NAME.000002.EXTENSION`, and another one begins: their
   * names sort as they were written, the last one being `NAME.EXTENSION`.
   */
  readonly rotateBytes?: number;
}

/** Appends lines; a file that rotates must not be rewritten. */
export class LinesFile {
  #file: FileHandle;
  #gathered: string[] = [];
  #replacement: Replacement | null = null;
  #writing: Promise<void> | null = null;
  /** Approximate size of the file. */
  #bytes = 0;
  /** Whether a write failed, which may have left half a line. */
  #torn = false;

  private constructor(
    readonly path: string,
    file: FileHandle,
    readonly onError: OnDiskError,
    readonly rotateBytes: number,
  ) {
    this.#file = file;
  }

  /** Raises RunError where the file cannot be opened. */
  static async open(
    path: string,
    onError: OnDiskError,
    { rotateBytes = Infinity }: LinesFileOptions = {},
  ): Promise<LinesFile> {
    try {
      makeFolder(dirname(path));
      const lines = new LinesFile(path, await open(path, 'a+', 0o600), onError, rotateBytes);
      await lines.#endTornLine();
      return lines;
    } catch (cause) {
      throw diskError(path, cause);
    }
  }

  /** Appends a line without its end. If the disk refuses, calls `onError` once per attempt. */
  append(line: string): void {
    this.#gathered.push(line);
    this.#writing ??= this.#write();
  }

  /**
   * Lets these lines stand for all that were taken so far; they are read while they are written, beside the file's place. Where the disk
   * refuses, which is told to `onError`, the file goes on as it was and nothing is lost.
   */
  replace(lines: Iterable<string>): void {
    this.#replacement = { lines, unwritten: [...(this.#replacement?.unwritten ?? []), ...this.#gathered] };
    this.#gathered = [];
    this.#writing ??= this.#write();
  }

  /** When everything taken so far is written or told as lost. */
  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing;
  }

  async close(): Promise<void> {
    await this.flush();
    await this.#file.close();
  }

  async #write(): Promise<void> {
    // Lines appended in the same turn are written together.
    await Promise.resolve();
    while (this.#replacement !== null || this.#gathered.length > 0) {
      if (this.#replacement !== null) await this.#writeAnew(this.#replacement);
      else await this.#writeGathered();
    }
    this.#writing = null;
  }

  async #writeGathered(): Promise<void> {
    const lines = this.#gathered;
    this.#gathered = [];
    const text = `${this.#torn ? '\n' : ''}${lines.join('\n')}\n`;
    try {
      await this.#file.appendFile(text);
      this.#torn = false;
    } catch (cause) {
      this.#torn = true;
      this.onError(diskError(this.path, cause), lines.length);
    }
    this.#bytes += Buffer.byteLength(text);
    if (this.#bytes >= this.rotateBytes) await this.#rotate();
  }

  /** Begins another file. Where the disk refuses this one goes on, and it is tried again when it has grown as much once more. */
  async #rotate(): Promise<void> {
    this.#bytes = 0;
    try {
      await rename(this.path, nextName(this.path));
      const full = this.#file;
      this.#file = await open(this.path, 'a+', 0o600);
      await full.close();
    } catch (cause) {
      this.onError(diskError(this.path, cause), 0);
    }
  }

  async #writeAnew({ lines, unwritten }: Replacement): Promise<void> {
    this.#replacement = null;
    const beside = `${this.path}.tmp`;
    let file: FileHandle | null = null;
    try {
      await rm(beside, { force: true });
      file = await open(beside, 'ax+', 0o600);
      for (const piece of inPieces(lines)) await file.appendFile(piece);
      await file.datasync();
      await rename(beside, this.path);
    } catch (cause) {
      this.#gathered.unshift(...unwritten);
      this.onError(diskError(beside, cause), 0);
      // What went wrong has been told; that it cannot be tidied up either is no further news.
      await Promise.allSettled([file?.close(), rm(beside, { force: true })]);
      return;
    }
    const outdated = this.#file;
    this.#file = file;
    await outdated.close().catch((cause: unknown) => this.onError(diskError(this.path, cause), 0));
  }

  /** A process that was killed may have left half a line, which the next one must not continue. */
  async #endTornLine(): Promise<void> {
    const { size } = await this.#file.stat();
    this.#bytes = size;
    if (size === 0) return;
    const { buffer } = await this.#file.read(Buffer.alloc(1), 0, 1, size - 1);
    if (buffer[0] !== 0x0a) await this.#file.appendFile('\n');
  }
}

/** `NAME.000001.EXTENSION` beside the file, or the number after the highest that is there. */
function nextName(path: string): string {
  const extension = extname(path);
  const name = basename(path, extension);
  const numbers = readdirSync(dirname(path)).map((other) => {
    const middle = other.slice(name.length, other.length - extension.length);
    const isOne = other.startsWith(name) && other.endsWith(extension) && /^\.\d+$/.test(middle);
    return isOne ? Number(middle.slice(1)) : 0;
  });
  const next = String(Math.max(0, ...numbers) + 1).padStart(6, '0');
  return join(dirname(path), `${name}.${next}${extension}`);
}

function* inPieces(lines: Iterable<string>): Iterable<string> {
  let piece = '';
  for (const line of lines) {
    piece += `${line}\n`;
    if (piece.length < pieceSize) continue;
    yield piece;
    piece = '';
  }
  if (piece !== '') yield piece;
}
