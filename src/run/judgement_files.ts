/**
 * The files of a run's judgements: `judgements.jsonl`, and older ones in pieces of some megabytes, `judgements/<number>-<last iteration>.jsonl.gz`,
 * which zcat can read.
 */
import { existsSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { diskError, syncDirectory, writeFileAtomic, makeFolder } from '../core/files.js';
import { RunError } from '../core/errors.js';
import { linesIn, scanLines, LogReader } from '../core/log/reader.js';
import { MEBIBYTE, readPlain, unpackPlain } from '../core/plain_file.js';
import { iterationName, parseIterationName } from './paths.js';

/** Position of a line, in bytes of the text. */
export interface LinePosition {
  /** The piece's name; null for the current file. */
  readonly piece: string | null;
  readonly offset: number;
  readonly length: number;
}

export interface FilePiece {
  readonly name: string;
  readonly path: string;
  /** The latest iteration with judgements in it. */
  readonly last: number;
}

/** At this size, the current file becomes a piece. */
export const PIECE_BYTES = 8 * 2 ** 20;
/** A piece may exceed `PIECE_BYTES` by a few lines; a far larger file is not a piece. */
const MOST_PIECE_BYTES = 64 * MEBIBYTE;
const PLAIN = '.jsonl';
const PACKED = '.jsonl.gz';
/** How many pieces are kept unpacked, for random access. */
const KEPT_TEXTS = 2;

export class JudgementFiles {
  readonly folder: string;
  readonly #texts = new Map<string, Buffer>();

  /** @param current path of the current file. */
  constructor(readonly current: string) {
    this.folder = join(dirname(current), basename(current, PLAIN));
  }

  /** The pieces, oldest first. A piece that a process left half-packed counts once. */
  get pieces(): FilePiece[] {
    if (!existsSync(this.folder)) return [];
    const found = new Map<string, FilePiece>();
    for (const file of readdirSync(this.folder).sort()) {
      const match = /^(\d+-(\d+))\.jsonl(?:\.gz)?$/.exec(file);
      const last = match === null ? null : parseIterationName(match[2]);
      if (match !== null && last !== null) found.set(match[1], { name: match[1], path: join(this.folder, file), last });
    }
    return [...found.values()];
  }

  /**
   * Calls back for every line that may belong to the iteration `from` or a later one, oldest first; null for every line. `current` reads the current
   * file, null if there is none; the positions of its lines stay valid whatever the run's owner does meanwhile. It has to be opened before the pieces
   * are listed, so that no line falls between the two.
   */
  scan(
    from: number | null,
    current: LogReader | null,
    onLine: (line: string, place: LinePosition, file: string) => void,
  ): void {
    for (const { name, path, last } of this.pieces) {
      if (from !== null && last < from) continue;
      for (const { text, start, end } of linesIn(this.#textOf(name))) {
        onLine(text, { piece: name, offset: start, length: end - 1 - start }, path);
      }
    }
    current?.scan((line, offset, length) => onLine(line, { piece: null, offset, length }, this.current));
  }

  /** Like `scan`, for callers that only want the lines. */
  scanAll(onLine: (line: string, place: LinePosition, file: string) => void): void {
    const current = LogReader.open(this.current);
    try {
      this.scan(null, current, onLine);
    } finally {
      current?.close();
    }
  }

  /** Reads the line at a position in a piece. */
  read(piece: string, { offset, length }: LinePosition): string {
    return this.#textOf(piece).toString('utf8', offset, offset + length);
  }

  /**
   * Turns the current file into a piece; nothing may have it open for writing. If the process dies meanwhile, every line is still in exactly one
   * place, packed or not. Returns the piece's name. Raises RunError when the disk refuses.
   */
  rotate(last: number): string {
    const name = this.#nextName(last);
    try {
      makeFolder(this.folder);
      renameSync(this.current, join(this.folder, name + PLAIN));
      syncDirectory(this.folder);
      syncDirectory(dirname(this.current));
    } catch (cause) {
      throw diskError(this.folder, cause);
    }
    this.#pack();
    return name;
  }

  #nextName(last: number): string {
    const number = (this.pieces.at(-1)?.name ?? '0').split('-')[0];
    return `${String(Number(number) + 1).padStart(4, '0')}-${iterationName(Math.max(0, last))}`;
  }

  /**
   * Called by the owner of a run before anybody reads. Packs what a process left unpacked, and splits a current file that is much longer than a
   * piece, as in runs begun without pieces. If the process dies meanwhile, lines may be in both places; they are identical. Raises RunError when the
   * disk refuses.
   */
  tidy(pieceBytes = PIECE_BYTES): void {
    this.#pack();
    if (!existsSync(this.current) || statSync(this.current).size < 2 * pieceBytes) return;
    let lines: string[] = [];
    let [bytes, last] = [0, -1];
    try {
      makeFolder(this.folder);
      scanLines(this.current, (line, _offset, length) => {
        lines.push(`${line}\n`);
        bytes += length + 1;
        last = Math.max(last, iterationOfKey(String((JSON.parse(line) as { key?: unknown }).key)));
        if (bytes < pieceBytes) return;
        const packed = join(this.folder, this.#nextName(last) + PACKED);
        writeFileAtomic(packed, gzipSync(lines.join('')));
        [lines, bytes] = [[], 0];
      });
      writeFileAtomic(this.current, lines.join(''));
    } catch (cause) {
      throw cause instanceof RunError ? cause : diskError(this.folder, cause);
    }
  }

  /** Packs the pieces that are not packed yet. */
  #pack(): void {
    if (!existsSync(this.folder)) return;
    for (const file of readdirSync(this.folder)) {
      if (!file.endsWith(PLAIN)) continue;
      const plain = join(this.folder, file);
      const packed = join(this.folder, basename(file, PLAIN) + PACKED);
      try {
        if (!existsSync(packed)) writeFileAtomic(packed, gzipSync(readPlain(plain, MOST_PIECE_BYTES) ?? ''));
        rmSync(plain);
      } catch (cause) {
        throw diskError(packed, cause);
      }
    }
  }

  #textOf(name: string): Buffer {
    const known = this.#texts.get(name);
    if (known !== undefined) return known;
    const text = pieceText(join(this.folder, name));
    const oldest = this.#texts.keys().next();
    if (this.#texts.size >= KEPT_TEXTS && oldest.done !== true) this.#texts.delete(oldest.value);
    this.#texts.set(name, text);
    return text;
  }
}

/**
 * The lines of a piece, packed or not, by its path without an ending: the owner may pack it at any time. Raises RunError when it is gone, not a plain
 * file, not gzip, or larger than a piece can be.
 */
export function pieceText(piece: string): Buffer {
  const text = readPlain(piece + PLAIN, MOST_PIECE_BYTES) ?? unpackPlain(piece + PACKED, MOST_PIECE_BYTES);
  if (text !== null) return text;
  throw new RunError('a piece of the judgements is gone', {
    where: piece + PACKED,
    next: 'Bring it back from a copy; without the piece its judgements are asked for again.',
  });
}

/** The iteration that a judgement belongs to; -1 if it belongs to none, such as the judge's own check. */
export function iterationOfKey(key: string): number {
  const found = /(?:^|\/)(\d+)\//.exec(key);
  return found === null ? -1 : Number(found[1]);
}
