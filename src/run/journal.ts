/**
 * Append-only JSON-lines files. A line is appended whole or not at all, a last line that a crash tore is cut off when the
 * file is opened again, and lines of iterations that a resumed run will do again are dropped.
 */
import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { RunError } from '../core/errors.js';
import { diskError, writeFileAtomic } from '../core/files.js';
import { scanLines } from '../core/lines.js';
import { requirePlain } from '../core/plain_file.js';
import { parseIterationName, type RunPaths } from './paths.js';

export { scanLines };

const NEWLINE = 10;

/** How lines reach the disk; tests put failing ones in. */
export interface JournalDisk {
  write(file: number, bytes: Uint8Array, offset: number, length: number): number;
}

const realDisk: JournalDisk = { write: (file, bytes, offset, length) => writeSync(file, bytes, offset, length) };

/**
 * One JSON line without its newline. JSON has no non-finite numbers and would write them as null, which hides them: they
 * become the strings "NaN", "Infinity", "-Infinity". Typed arrays become arrays.
 */
export function encodeLine(value: unknown): { line: string; nonFinite: number } {
  let nonFinite = 0;
  const line = JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item === 'number' && !Number.isFinite(item)) {
      nonFinite++;
      return String(item);
    }
    return ArrayBuffer.isView(item) && !(item instanceof DataView) ? Array.from(item as Uint8Array) : item;
  });
  return { line, nonFinite };
}

/** Turns the strings that `encodeLine` writes for non-finite numbers back into numbers; null for any other value that is no number. */
export function decodeNumber(value: unknown): number | null {
  if (typeof value === 'number') return value;
  return value === 'NaN' || value === 'Infinity' || value === '-Infinity' ? Number(value) : null;
}

/** An open journal. Opening repairs a torn last line; `repairedBytes` says how much was cut off. */
export class Journal {
  readonly repairedBytes: number;
  #file: number | null;
  #length: number;

  constructor(
    readonly path: string,
    private readonly disk: JournalDisk = realDisk,
  ) {
    try {
      mkdirSync(dirname(path), { recursive: true });
      this.#file = openSync(path, 'a+');
      const found = fstatSync(this.#file);
      requirePlain(found, path);
      const before = found.size;
      this.#length = wholeLength(this.#file, before);
      if (this.#length < before) ftruncateSync(this.#file, this.#length);
      this.repairedBytes = before - this.#length;
    } catch (cause) {
      throw cause instanceof RunError ? cause : diskError(path, cause);
    }
  }

  /** Appends one value as one line and returns where it lies (bytes) and how many non-finite numbers it held. */
  append(value: unknown): { offset: number; length: number; nonFinite: number } {
    const { line, nonFinite } = encodeLine(value);
    const bytes = Buffer.from(`${line}\n`, 'utf8');
    const offset = this.#length;
    this.#write(bytes);
    return { offset, length: bytes.length - 1, nonFinite };
  }

  /** The open file. */
  get descriptor(): number {
    return this.#open();
  }

  /** The text of a line that `append` or `scanLines` located. */
  readAt(offset: number, length: number): string {
    const bytes = readRange(this.#open(), offset, offset + length);
    if (bytes.length < length) throw new RunError('the file is shorter than it was', { where: this.path });
    return bytes.toString('utf8');
  }

  /** Makes what was appended durable. */
  sync(): void {
    try {
      fsyncSync(this.#open());
    } catch (cause) {
      throw diskError(this.path, cause);
    }
  }

  close(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #open(): number {
    if (this.#file === null) throw new RunError('the journal is closed', { where: this.path });
    return this.#file;
  }

  #write(bytes: Uint8Array): void {
    const file = this.#open();
    try {
      let done = 0;
      while (done < bytes.length) done += this.disk.write(file, bytes, done, bytes.length - done);
      this.#length += bytes.length;
    } catch (cause) {
      // A full disk can take half a line; what was there before is whole again afterwards.
      ftruncateSync(file, this.#length);
      throw diskError(this.path, cause);
    }
  }
}

/** Every whole line of a file as JSON objects. Raises RunError naming the line that is not one. */
export function readLines(path: string): Record<string, unknown>[] {
  const out: Record<string, unknown>[] = [];
  scanLines(path, (line) => {
    out.push(parseLine(line, path, out.length + 1));
  });
  return out;
}

/** Parses one line. Raises RunError naming it when it is not a JSON object. */
export function parseLine(line: string, path: string, number: number): Record<string, unknown> {
  try {
    const value = JSON.parse(line) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (cause) {
    throw notALine(path, number, cause);
  }
  throw notALine(path, number);
}

/** Drops the lines of a journal whose `iteration` is later than the given one; returns how many. */
export function dropLinesAfter(path: string, iteration: number): number {
  const kept: string[] = [];
  let dropped = 0;
  let number = 0;
  scanLines(path, (line) => {
    number++;
    const of = parseLine(line, path, number)['iteration'];
    if (typeof of !== 'number') throw notALine(path, number);
    if (of > iteration) dropped++;
    else kept.push(line);
  });
  if (dropped > 0) writeFileAtomic(path, kept.map((line) => `${line}\n`).join(''));
  return dropped;
}

/** Brings metrics and episodes back to the end of an iteration (-1: to nothing), so that a resumed run appends what follows. */
export function rewindTo(paths: RunPaths, iteration: number): void {
  if (existsSync(paths.metrics)) {
    new Journal(paths.metrics).close();
    dropLinesAfter(paths.metrics, iteration);
  }
  if (!existsSync(paths.episodesDir)) return;
  for (const name of readdirSync(paths.episodesDir)) {
    const of = parseIterationName(/^(?:validation_)?(\d+)\.jsonl$/.exec(name)?.[1] ?? '');
    if (of !== null && of > iteration) rmSync(join(paths.episodesDir, name));
  }
}

/**
 * The length of a file without a torn end. A line counts when it ends in a newline and is JSON: after a power failure
 * a block of zeros can stand where a line was.
 */
function wholeLength(file: number, size: number): number {
  let end = size;
  while (end > 0) {
    const start = lastLineStart(file, end);
    const bytes = readRange(file, start, end);
    if (bytes[bytes.length - 1] === NEWLINE && isJson(bytes.toString('utf8'))) return end;
    end = start;
  }
  return 0;
}

/** Where the last line of the first `end` bytes begins. */
function lastLineStart(file: number, end: number): number {
  let at = end - 1;
  while (at > 0) {
    const from = Math.max(0, at - 65_536);
    const newline = readRange(file, from, at).lastIndexOf(NEWLINE);
    if (newline >= 0) return from + newline + 1;
    at = from;
  }
  return 0;
}

/** The bytes of a file from `from` to before `to`, or to its end where that comes first. */
function readRange(file: number, from: number, to: number): Buffer {
  const bytes = Buffer.alloc(to - from);
  let done = 0;
  while (done < bytes.length) {
    const read = readSync(file, bytes, done, bytes.length - done, from + done);
    if (read === 0) break;
    done += read;
  }
  return bytes.subarray(0, done);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function notALine(path: string, number: number, cause?: unknown): RunError {
  return new RunError('not a line of this journal', {
    where: `${path}:${number}`,
    next: 'Remove that line, or restore the file from a copy.',
    cause,
  });
}
