/**
 * Files of lines as bytes: files that may still be growing, that may end in half a line, and that may be larger than memory. What a line
 * means is decoded by the callers.
 */
import { closeSync, fstatSync, readSync } from 'node:fs';
import { RunError } from '../errors.js';
import { MEBIBYTE, openPlain } from '../plain_file.js';

/** The first read of a scan takes this much; later ones take up to `MOST_CHUNK_BYTES`. */
const CHUNK_BYTES = 64 * 1024;
const MOST_CHUNK_BYTES = 4 * MEBIBYTE;
/** What is read at a place for one sampled line. */
const PROBE_BYTES = 16 * 1024;
/** How far back the last lines of a file are looked for. */
const MOST_TAIL_BYTES = 64 * MEBIBYTE;
/** What is taken up at once while a file is followed, unless the caller says otherwise. */
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

/** Receives a line and its place in bytes, its newline not counted. */
export type OnLine = (line: string, offset: number, length: number) => void;

/** Lines of more bytes than `longest` are skipped and never held in memory. */
export interface LongLines {
  readonly longest: number;
  /** Receives the length of such a line in bytes. */
  readonly onTooLong: (length: number) => void;
  /** Called as soon as a line turns out to be too long, before its end is found. */
  readonly onBegun?: () => void;
}

/** Longer than any line that this program writes: a file without newlines is read no further. */
export const LONGEST_LINE_BYTES = 64 * MEBIBYTE;

/** Raises RunError for a line that is too long. */
export function refuseLongLines(path: string): LongLines {
  const refuse = (): never => {
    throw lineTooLong(path);
  };
  return { longest: LONGEST_LINE_BYTES, onTooLong: refuse, onBegun: refuse };
}

function lineTooLong(path: string): RunError {
  return new RunError(`a line has more than ${LONGEST_LINE_BYTES / MEBIBYTE} MiB, which no line of such a file has`, {
    where: path,
    next: 'See who put it there; move it away, or restore the file from a copy.',
  });
}

/** The whole lines of some bytes, the first of which is byte `from` of a file. A last line without a newline is left out. */
export function* linesIn(bytes: Buffer, from = 0): Generator<Line> {
  let start = 0;
  for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
    yield { text: bytes.toString('utf8', start, end), start: from + start, end: from + end + 1 };
    start = end + 1;
  }
}

/**
 * Calls back for every whole line of a file, in order; half a line at the end is skipped. Returns the bytes of that half line: 0 where the
 * file ends with a newline or does not exist. Raises RunError where the file cannot be read, and for a line of more than 64 MiB unless
 * `long` takes it.
 */
export function scanLines(path: string, onLine: OnLine, long = refuseLongLines(path)): number {
  return withLog(path, 0, (log) => log.scan(onLine, long));
}

/** Opens a file of lines, calls `read`, and closes it. Returns `absent` where there is no file. Raises RunError as `LogReader.open`. */
export function withLog<T>(path: string, absent: T, read: (log: LogReader) => T): T {
  const log = LogReader.open(path);
  if (log === null) return absent;
  try {
    return read(log);
  } finally {
    log.close();
  }
}

/** An open file of lines, whatever its path leads to meanwhile. All methods raise RunError where the system refuses to read. */
export class LogReader {
  /** @param file a descriptor that can be read; `close` closes it. */
  constructor(
    readonly file: number,
    readonly path: string,
  ) {}

  /** Null where there is no file. Raises RunError for anything but a plain file. */
  static open(path: string): LogReader | null {
    const file = openPlain(path);
    return file === null ? null : new LogReader(file, path);
  }

  /** In bytes, now. */
  get size(): number {
    return fstatSync(this.file).size;
  }

  close(): void {
    closeSync(this.file);
  }

  /** The bytes from `from` to before `to`, or to the file's end where that comes first. */
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

  /** The line at a place that is known. Raises RunError where the file has become shorter. */
  at(offset: number, length: number): string {
    const bytes = this.bytes(offset, offset + length);
    if (bytes.length < length) throw new RunError('the file is shorter than it was', { where: this.path });
    return bytes.toString('utf8');
  }

  /** The whole lines from byte `from` on. Returns the bytes of half a line at the end. Raises RunError for a line that is too long. */
  *lines(from = 0, { longest, onTooLong, onBegun }: LongLines = refuseLongLines(this.path)): Generator<Line, number> {
    // What was read of a line whose end was not found yet: `held` bytes, and before these `skipped` bytes if it is too long.
    let rest: Buffer[] = [];
    let [held, skipped] = [0, 0];
    let position = from;
    for (let size = CHUNK_BYTES; ; size = Math.min(2 * size, MOST_CHUNK_BYTES)) {
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

  /** As `scanLines`. */
  scan(onLine: OnLine, long?: LongLines): number {
    const lines = this.lines(0, long);
    for (;;) {
      const next = lines.next();
      if (next.done === true) return next.value;
      const { text, start, end } = next.value;
      onLine(text, start, end - 1 - start);
    }
  }

  /** Whole lines from byte `from` on: `most` bytes of them at most, but one line at least where there is one. */
  piece(from: number, most = PIECE_BYTES): Line[] {
    const lines: Line[] = [];
    for (const line of this.lines(from)) {
      if (lines.length > 0 && line.end - from > most) break;
      lines.push(line);
    }
    return lines;
  }

  /** The last line that has its newline; null where there is none. Raises RunError for a line that is too long. */
  last(): string | null {
    const { size } = this;
    const [end, start] = this.#startsBefore(size, Math.max(0, size - LONGEST_LINE_BYTES));
    if (end === 0) return null;
    if (start === undefined) throw lineTooLong(this.path);
    return this.bytes(start, end - 1).toString('utf8');
  }

  /** Where the last `count` lines begin, within the last 64 MiB. Half a line at the end counts as a line. */
  startOfLast(count: number): number {
    const { size } = this;
    if (count === 0) return size;
    const least = Math.max(0, size - MOST_TAIL_BYTES);
    let missing = count;
    for (const start of this.#startsBefore(size, least)) {
      // The newline at the very end begins no line.
      if (start < size) missing--;
      if (missing === 0) return start;
    }
    return least;
  }

  /**
   * The length of the file without what a crash left at its end: half a line, and lines that are not `whole`, because after a power failure
   * a block of zeros can stand where a line was.
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

  /** The first whole line with `mark` among `most` bytes from byte `start` on; null where there is none or it is too long. */
  firstWith(mark: Buffer, most: number, start = 0): Line | null {
    const end = Math.min(this.size, start + most);
    for (let from = start; from < end;) {
      const bytes = this.bytes(from, Math.min(end, from + CHUNK_BYTES));
      const at = bytes.indexOf(mark);
      if (at >= 0) return this.#around(from + at);
      if (bytes.length <= mark.length) return null;
      // A mark may lie across two chunks.
      from += bytes.length - mark.length;
    }
    return null;
  }

  /** As `firstWith`, the last one within the last `most` bytes. */
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

  /** About `count` whole lines, evenly spread over the file by its bytes; a line longer than 16 KiB may be missed. */
  *sample(count: number): Generator<string> {
    const { size } = this;
    let after = 0;
    for (let probe = 0; probe < count; probe++) {
      const from = Math.max(after, Math.floor((probe * size) / count));
      const bytes = this.bytes(from, from + PROBE_BYTES);
      const start = probe === 0 ? 0 : bytes.indexOf(NEWLINE) + 1;
      const end = bytes.indexOf(NEWLINE, start);
      if (end < 0) continue;
      yield bytes.toString('utf8', start, end);
      after = from + end;
    }
  }

  /** Where lines begin, at `at` or before, last first; newlines before `least` are not looked for. */
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

  /** The whole line around a byte; null where it has no newline yet, and where it is too long. */
  #around(at: number): Line | null {
    const [start] = this.#startsBefore(at, Math.max(0, at - LONGEST_LINE_BYTES)) as Iterable<number | undefined>;
    if (start === undefined) return null;
    for (let from = at; from < start + LONGEST_LINE_BYTES;) {
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
