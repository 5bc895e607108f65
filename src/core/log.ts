/**
 * Files of lines, as bytes: reading, following and appending. A file may still grow, may end in half a line, and may be larger than memory.
 * Callers decode the lines. A line is appended whole or not at all, and opening a file for appending removes the remains of a crash.
 */
import {
  type Stats,
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { RunError } from './errors.js';
import { diskError, makeFolder, writeFileAtomic } from './files.js';
import { MEBIBYTE, openPlain, requirePlain } from './plain_file.js';

/** Size of the first read of a scan. Later ones grow up to `MAX_CHUNK_BYTES`. */
const CHUNK_BYTES = 64 * 1024;
const MAX_CHUNK_BYTES = 4 * MEBIBYTE;
/** Number of bytes at a file's end that are searched for its last lines. */
const MAX_TAIL_BYTES = 64 * MEBIBYTE;
/** Bytes read at once while following a file, by default. */
const PIECE_BYTES = 2 * MEBIBYTE;
const NEWLINE = 10;

/** A line without its newline. */
export interface Line {
  readonly text: string;
  /** Its first byte in the file. */
  readonly start: number;
  /** The first byte behind its newline. */
  readonly end: number;
}

/** Receives a line and its place in bytes, without its newline. */
export type OnLine = (line: string, offset: number, length: number) => void;

/** Lines longer than `longest` bytes are skipped and never in memory. */
export interface LongLines {
  readonly longest: number;
  /** Receives the length of such a line in bytes. */
  readonly onTooLong: (length: number) => void;
  /** Called as soon as a line is too long, before its end is found. */
  readonly onBegun?: () => void;
}

/** Longer than any line that this program writes. A file without newlines is not read further. */
export const MAX_LINE_BYTES = 64 * MEBIBYTE;

/** Raises RunError for a line that is too long. */
export function refuseLongLines(path: string): LongLines {
  const refuse = (): never => {
    throw lineTooLong(path);
  };
  return { longest: MAX_LINE_BYTES, onTooLong: refuse, onBegun: refuse };
}

function lineTooLong(path: string): RunError {
  return new RunError(`a line has more than ${MAX_LINE_BYTES / MEBIBYTE} MiB, more than any line of such a file`, {
    where: path,
    next: 'Check who wrote it. Move it away, or restore the file from a copy.',
  });
}

/** The complete lines in some bytes that start at byte `from` of a file. A last line without a newline is left out. */
export function* linesIn(bytes: Buffer, from = 0): Generator<Line> {
  let start = 0;
  for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
    yield { text: bytes.toString('utf8', start, end), start: from + start, end: from + end + 1 };
    start = end + 1;
  }
}

/**
 * Calls back for every complete line of a file, in order, and skips half a line at the end. Returns the bytes of that half line: 0 if the
 * file ends with a newline or does not exist. Raises RunError if the file cannot be read, and for a line of more than 64 MiB unless `long`
 * handles it.
 */
export function scanLines(path: string, onLine: OnLine, long = refuseLongLines(path)): number {
  return withLog(path, 0, (log) => log.scan(onLine, long));
}

/** Opens a file of lines, calls `read`, and closes it. Returns `absent` if there is no file. Raises the RunErrors of `LogReader.open`. */
export function withLog<T>(path: string, absent: T, read: (log: LogReader) => T): T {
  const log = LogReader.open(path);
  if (log === null) return absent;
  try {
    return read(log);
  } finally {
    log.close();
  }
}

/** An open file of lines, even if its path points elsewhere now. All methods raise RunError if it cannot be read. */
export class LogReader {
  /** @param file a readable descriptor, which `close` closes. */
  constructor(
    readonly file: number,
    readonly path: string,
  ) {}

  /** Null if there is no file. Raises RunError for anything but a plain file. */
  static open(path: string): LogReader | null {
    const file = openPlain(path);
    return file === null ? null : new LogReader(file, path);
  }

  /** Current size in bytes. */
  get size(): number {
    return fstatSync(this.file).size;
  }

  close(): void {
    closeSync(this.file);
  }

  /** The bytes from `from` to before `to`, or to the end of the file. */
  bytes(from: number, to: number): Buffer {
    const bytes = Buffer.allocUnsafe(Math.max(0, to - from));
    let done = 0;
    try {
      while (done < bytes.length) {
        const read = readSync(this.file, bytes, done, bytes.length - done, from + done);
        if (read === 0) break;
        done += read;
      }
    } catch (cause) {
      throw new RunError('cannot read the file', { where: this.path, cause });
    }
    return bytes.subarray(0, done);
  }

  /** The line at a known place. Raises RunError if the file has become shorter. */
  at(offset: number, length: number): string {
    const bytes = this.bytes(offset, offset + length);
    if (bytes.length < length) throw new RunError('the file is shorter than it was', { where: this.path });
    return bytes.toString('utf8');
  }

  /** The complete lines from byte `from`. Returns the number of bytes of an incomplete last line. Raises RunError for a line that is too long. */
  *lines(from = 0, { longest, onTooLong, onBegun }: LongLines = refuseLongLines(this.path)): Generator<Line, number> {
    // The unfinished line: `held` bytes in memory, after `skipped` bytes if it is too long.
    let rest: Buffer[] = [];
    let [held, skipped] = [0, 0];
    let position = from;
    for (let size = CHUNK_BYTES; ; size = Math.min(2 * size, MAX_CHUNK_BYTES)) {
      const chunk = this.bytes(position, position + size);
      if (chunk.length === 0) return skipped + held;
      position += chunk.length;
      rest.push(chunk);
      held += chunk.length;
      if (chunk.includes(NEWLINE)) {
        const bytes = Buffer.concat(rest);
        const start = position - held;
        let behind = start;
        for (const line of linesIn(bytes, start)) {
          const length = skipped + line.end - 1 - line.start;
          if (length > longest) onTooLong(length);
          else yield line;
          skipped = 0;
          behind = line.end;
        }
        held = position - behind;
        rest = [bytes.subarray(behind - start)];
      }
      if (skipped + held <= longest) continue;
      if (skipped === 0) onBegun?.();
      skipped += held;
      [rest, held] = [[], 0];
    }
  }

  /** See `scanLines`. */
  scan(onLine: OnLine, long?: LongLines): number {
    const lines = this.lines(0, long);
    for (;;) {
      const next = lines.next();
      if (next.done === true) return next.value;
      const { text, start, end } = next.value;
      onLine(text, start, end - 1 - start);
    }
  }

  /** Complete lines from byte `from`: at most `most` bytes, but at least one line if there is one. */
  piece(from: number, most = PIECE_BYTES): Line[] {
    const lines: Line[] = [];
    for (const line of this.lines(from)) {
      if (lines.length > 0 && line.end - from > most) break;
      lines.push(line);
    }
    return lines;
  }

  /** The last complete line. Null if there is none. Raises RunError for a line that is too long. */
  last(): string | null {
    const { size } = this;
    const [end, start] = this.#startsBefore(size, Math.max(0, size - MAX_LINE_BYTES));
    if (end === 0) return null;
    if (start === undefined) throw lineTooLong(this.path);
    return this.bytes(start, end - 1).toString('utf8');
  }

  /** Start of the last `count` lines, within the last 64 MiB. Half a line at the end counts as a line. */
  startOfLast(count: number): number {
    const { size } = this;
    if (count === 0) return size;
    const least = Math.max(0, size - MAX_TAIL_BYTES);
    let missing = count;
    for (const start of this.#startsBefore(size, least)) {
      // The newline at the very end starts no line.
      if (start < size) missing--;
      if (missing === 0) return start;
    }
    return least;
  }

  /**
   * The length of the file without the remains of a crash at its end: half a line, and lines that are not `whole`. After a power failure, a
   * block of zeros can replace a line.
   */
  wholeLength(whole: (line: string) => boolean): number {
    let end = this.size;
    for (const start of this.#startsBefore(end - 1)) {
      const bytes = this.bytes(start, end);
      if (bytes[bytes.length - 1] === NEWLINE && whole(bytes.toString('utf8', 0, bytes.length - 1))) return end;
      end = start;
    }
    return 0;
  }

  /** The first complete line with `mark` in the `most` bytes from byte `start`. Null if there is none or it is too long. */
  firstWith(mark: Buffer, most: number, start = 0): Line | null {
    const end = Math.min(this.size, start + most);
    for (let from = start; from < end;) {
      const bytes = this.bytes(from, Math.min(end, from + CHUNK_BYTES));
      const at = bytes.indexOf(mark);
      if (at >= 0) return this.#around(from + at);
      if (bytes.length <= mark.length) return null;
      // A mark may span two chunks.
      from += bytes.length - mark.length;
    }
    return null;
  }

  /** Like `firstWith`, for the last matching line within the last `most` bytes. */
  lastWith(mark: Buffer, most: number): Line | null {
    const { size } = this;
    const least = Math.max(0, size - most);
    for (let to = size; to > least;) {
      const from = Math.max(least, to - CHUNK_BYTES);
      const bytes = this.bytes(from, to);
      for (let at = bytes.lastIndexOf(mark); at >= 0;) {
        const line = this.#around(from + at);
        if (line !== null) return line;
        const previous = bytes.lastIndexOf(NEWLINE, at);
        at = previous <= 0 ? -1 : bytes.lastIndexOf(mark, previous);
      }
      if (from === least) return null;
      to = from + mark.length;
    }
    return null;
  }

  /** Starts of lines at or before `at`, last first. Newlines before `least` are ignored. */
  *#startsBefore(at: number, least = 0): Generator<number> {
    for (let to = at; to > least;) {
      const from = Math.max(least, to - CHUNK_BYTES);
      const bytes = this.bytes(from, to);
      for (
        let newline = bytes.lastIndexOf(NEWLINE);
        newline >= 0;
        newline = newline === 0 ? -1 : bytes.lastIndexOf(NEWLINE, newline - 1)
      ) {
        yield from + newline + 1;
      }
      to = from;
    }
    if (least === 0) yield 0;
  }

  /** The complete line around a byte. Null if it has no newline yet, or is too long. */
  #around(at: number): Line | null {
    const [start] = this.#startsBefore(at, Math.max(0, at - MAX_LINE_BYTES)) as Iterable<number | undefined>;
    if (start === undefined) return null;
    for (let from = at; from < start + MAX_LINE_BYTES;) {
      const bytes = this.bytes(from, from + CHUNK_BYTES);
      const newline = bytes.indexOf(NEWLINE);
      if (newline >= 0) {
        const end = from + newline;
        return { text: this.bytes(start, end).toString('utf8'), start, end: end + 1 };
      }
      if (bytes.length === 0) return null;
      from += bytes.length;
    }
    return null;
  }
}

/** Writes lines to the disk. Tests replace it. */
export interface LogDisk {
  write(file: number, bytes: Uint8Array, offset: number, length: number): number;
}

const realDisk: LogDisk = { write: (file, bytes, offset, length) => writeSync(file, bytes, offset, length) };

/** A file of lines, open for appending. All methods raise RunError on a disk error. */
export class LogWriter {
  /** Bytes that were removed when it was opened. */
  readonly repairedBytes: number;
  #log: LogReader | null = null;
  #length: number;

  /** @param whole whether a line is intact after a power failure. */
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

  /** Appends a line and returns its place in bytes, without its newline. */
  appendLine(line: string): { offset: number; length: number } {
    const bytes = Buffer.from(`${line}\n`, 'utf8');
    const { file } = this.log;
    const offset = this.#length;
    try {
      let done = 0;
      while (done < bytes.length) done += this.disk.write(file, bytes, done, bytes.length - done);
      this.#length += bytes.length;
    } catch (cause) {
      // A full disk may accept half a line. Restores the previous content.
      ftruncateSync(file, offset);
      throw diskError(this.path, cause);
    }
    return { offset, length: bytes.length - 1 };
  }

  /** Makes appended lines durable. */
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
 * Replaces lines, or removes those for which `change` returns null. Lines are counted from 1. The file is rewritten atomically, and only if
 * something changes. Returns the number of removed lines.
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

/** The file at the path now. */
export interface FollowedFile {
  readonly log: LogReader;
  /** It is a new file, or the first one. */
  readonly replaced: boolean;
  /** The file is the same, and shorter than the part that was read. */
  readonly shorter: boolean;
}

/** Follows a path across replacements of its file. The caller counts the bytes that it has read. */
export class FollowedLog {
  #log: LogReader | null = null;
  #identity = '';

  constructor(readonly path: string) {}

  /** The open file, which may have been moved away from the path. */
  get current(): LogReader | null {
    return this.#log;
  }

  /** Whether the path points to another file than the open one. False if there is none. Raises RunError. */
  get moved(): boolean {
    const there = statOf(this.path);
    if (there === null || this.#log === null) return false;
    const { ino, dev } = fstatSync(this.#log.file);
    return ino !== there.ino || dev !== there.dev;
  }

  /**
   * Opens the file at the path unless it is open. Null if there is none. Raises RunError.
   * @param seen the bytes that were read.
   */
  look(seen: number): FollowedFile | null {
    if (statOf(this.path) === null) {
      this.close();
      this.#identity = '';
      return null;
    }
    if (this.moved) this.close();
    this.#log ??= LogReader.open(this.path);
    if (this.#log === null) return null;
    const { ino, dev, birthtimeMs, size } = fstatSync(this.#log.file);
    // After `close`, another file may reuse the inode number.
    const identity = `${dev} ${ino} ${birthtimeMs}`;
    const replaced = identity !== this.#identity;
    this.#identity = identity;
    return { log: this.#log, replaced, shorter: !replaced && size < seen };
  }

  /** Closes the file. The next call of `look` still recognizes it. */
  close(): void {
    this.#log?.close();
    this.#log = null;
  }
}

function statOf(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch (cause) {
    throw new RunError('cannot read the file', { where: path, cause });
  }
}
