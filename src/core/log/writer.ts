/**
 * Appending to a file of lines. A line is appended whole or not at all, what a crash tore is cut off when the file is opened again, and
 * lines are taken back by writing the file anew beside its place.
 */
import { fstatSync, fsyncSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { RunError } from '../errors.js';
import { diskError, writeFileAtomic, makeFolder } from '../files.js';
import { requirePlain } from '../plain_file.js';
import { LogReader, scanLines } from './reader.js';

/** How lines reach the disk; tests use ones that fail. */
export interface LogDisk {
  write(file: number, bytes: Uint8Array, offset: number, length: number): number;
}

const realDisk: LogDisk = { write: (file, bytes, offset, length) => writeSync(file, bytes, offset, length) };

/** A file of lines that is open for appending. All methods raise RunError when the disk refuses. */
export class LogWriter {
  /** How many bytes were cut off when it was opened. */
  readonly repairedBytes: number;
  #log: LogReader | null = null;
  #length: number;

  /** @param whole tells a line from what a power failure left in its place. */
  constructor(
    readonly path: string,
    whole: (line: string) => boolean,
    private readonly disk: LogDisk = realDisk,
  ) {
    try {
      makeFolder(dirname(path));
      const file = openSync(path, 'a+');
      this.#log = new LogReader(file, path);
      const found = fstatSync(file);
      requirePlain(found, path);
      this.#length = this.#log.wholeLength(whole);
      if (this.#length < found.size) ftruncateSync(file, this.#length);
      this.repairedBytes = found.size - this.#length;
    } catch (cause) {
      this.close();
      throw cause instanceof RunError ? cause : diskError(path, cause);
    }
  }

  /** Reads the same open file. */
  get log(): LogReader {
    if (this.#log === null) throw new RunError('the journal is closed', { where: this.path });
    return this.#log;
  }

  /** Appends a line without its newline and returns where it lies, in bytes. */
  appendLine(line: string): { offset: number; length: number } {
    const bytes = Buffer.from(`${line}\n`, 'utf8');
    const { file } = this.log;
    const offset = this.#length;
    try {
      let done = 0;
      while (done < bytes.length) done += this.disk.write(file, bytes, done, bytes.length - done);
      this.#length += bytes.length;
    } catch (cause) {
      // A full disk can take half a line; what was there before is whole again afterwards.
      ftruncateSync(file, offset);
      throw diskError(this.path, cause);
    }
    return { offset, length: bytes.length - 1 };
  }

  /** Makes what was appended durable. */
  sync(): void {
    try {
      fsyncSync(this.log.file);
    } catch (cause) {
      throw cause instanceof RunError ? cause : diskError(this.path, cause);
    }
  }

  close(): void {
    this.#log?.close();
    this.#log = null;
  }
}

/**
 * Puts another line in a line's place, or none where `change` gives null; lines are counted from 1. The file is written anew at once or not
 * at all, and only where something changes. Returns how many lines are gone.
 */
export function rewriteLines(path: string, change: (line: string, number: number) => string | null): number {
  const kept: string[] = [];
  let [number, changed] = [0, false];
  scanLines(path, (line) => {
    const next = change(line, ++number);
    changed ||= next !== line;
    if (next !== null) kept.push(next);
  });
  if (changed) writeFileAtomic(path, kept.map((line) => `${line}\n`).join(''));
  return number - kept.length;
}
