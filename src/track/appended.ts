/** Reading what was appended to a file of lines since it was last looked at. */
import { closeSync, fstatSync, readSync, statSync } from 'node:fs';
import { RunError } from '../core/errors.js';
import { LONGEST_LINE_BYTES, lineTooLong } from '../core/lines.js';
import { openPlain } from '../core/plain_file.js';

const NEWLINE = 10;

/** So much of a file is read at once: a request to W&B holds what became of it. */
export const PIECE_BYTES = 2 * 1024 * 1024;

/** A whole line, and where the next one begins in bytes. */
export interface PlacedLine {
  readonly text: string;
  readonly end: number;
}

/** The whole lines from a byte on, about `most` bytes of them and at least one where there is one; a last line without its end waits. */
export function wholeLines(file: number, from: number, most = PIECE_BYTES): PlacedLine[] {
  const { size } = fstatSync(file);
  for (let length = most; ; length *= 4) {
    if (length > 4 * LONGEST_LINE_BYTES) throw lineTooLong('a file of the run');
    const bytes = readRange(file, from, Math.min(length, size - from));
    const lines: PlacedLine[] = [];
    let start = 0;
    for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
      lines.push({ text: bytes.toString('utf8', start, end), end: from + end + 1 });
      start = end + 1;
    }
    if (lines.length > 0 || from + length >= size) return lines;
  }
}

function readRange(file: number, from: number, length: number): Buffer {
  const bytes = Buffer.alloc(Math.max(0, length));
  let done = 0;
  while (done < bytes.length) {
    const read = readSync(file, bytes, done, bytes.length - done, from + done);
    if (read === 0) break;
    done += read;
  }
  return bytes.subarray(0, done);
}

/** A file that is kept open while it is followed, so that another one in its place is told apart. */
export class FollowedFile {
  #file: number | null = null;

  constructor(readonly path: string) {}

  /** Its descriptor, and whether it is another file than before, or a shorter one; null where there is none. Raises RunError. */
  look(seen: number): { readonly file: number; readonly another: boolean } | null {
    try {
      const there = statSync(this.path, { throwIfNoEntry: false });
      if (there === undefined) {
        this.close();
        return null;
      }
      if (this.#file !== null) {
        const { ino, dev } = fstatSync(this.#file);
        if (ino === there.ino && dev === there.dev) return { file: this.#file, another: there.size < seen };
        this.close();
      }
      this.#file = openPlain(this.path);
      if (this.#file === null) return null;
      return { file: this.#file, another: true };
    } catch (cause) {
      if (cause instanceof RunError) throw cause;
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw new RunError('cannot read the file', { where: this.path, cause });
    }
  }

  close(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}
