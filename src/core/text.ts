/** Texts from users, read strictly: a lenient decoder would turn characters of another encoding into U+FFFD, which would be trained on and scored. */
import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import type { EditrlError } from './errors.js';
import { DataError, type ErrorDetails } from './errors.js';

/** The class of errors that a reader raises. */
export type ErrorKind = new (message: string, details?: ErrorDetails) => EditrlError;

export interface TextPlace {
  /** The number of the first line, counted from 1. */
  readonly line?: number;
  /** DataError by default. */
  readonly kind?: ErrorKind;
}

const NEWLINE = 0x0a;
const LFS_POINTER = 'version https://git-lfs.github.com/spec/';

/** Raises an error for a Git LFS pointer, which replaces large files in a clone without git-lfs. */
export function refuseLfsPointer(bytes: Uint8Array, where: string, Kind: ErrorKind = DataError): void {
  if (Buffer.from(bytes.subarray(0, LFS_POINTER.length)).toString('latin1') !== LFS_POINTER) return;
  throw new Kind('this is a Git LFS pointer, not the file itself', {
    where,
    next: 'Run `git lfs pull` in its repository, or download the file.',
  });
}

/** The text of UTF-8 bytes. Raises an error with file and line for bytes that are not UTF-8 and for NUL, and as `refuseLfsPointer`. */
export function textOf(bytes: Uint8Array, file: string, { line = 1, kind: Kind = DataError }: TextPlace = {}): string {
  refuseLfsPointer(bytes, file, Kind);
  if (isText(bytes)) return new TextDecoder().decode(bytes);
  throw new Kind('is not text in UTF-8', {
    where: `${file}:${line + brokenLine(bytes)}`,
    next: 'Convert the file to UTF-8, for example with `iconv -f ENCODING -t UTF-8`.',
  });
}

/** UTF-16 without a byte order mark has a NUL in every other byte, and can be valid UTF-8. */
function isText(bytes: Uint8Array): boolean {
  return isUtf8(bytes) && !bytes.includes(0);
}

/** The first line, from 0, that is not text. A line break is never part of another character. */
function brokenLine(bytes: Uint8Array): number {
  for (let start = 0, line = 0; ; line++) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found < 0 ? bytes.length : found;
    if (found < 0 || !isText(bytes.subarray(start, end))) return line;
    start = end + 1;
  }
}

/** A file as text. Raises the errors of `textOf`, and the system's error for an unreadable file. */
export function readTextFile(file: string, kind: ErrorKind = DataError): string {
  return textOf(readFileSync(file), file, { kind });
}

/**
 * Parses JSON. An integer that a number cannot represent exactly stays text. Raises an error, naming `where`, for anything that is not JSON
 * and for a string with half a surrogate pair, which no encoding can write.
 */
export function parseJson(text: string, where: string, Kind: ErrorKind = DataError): unknown {
  let value: unknown;
  try {
    value = JSON.parse(/\d{16}/.test(text) ? withExactIntegers(text) : text);
  } catch (cause) {
    throw new Kind(`is not JSON (${(cause as Error).message})`, {
      where,
      next: 'Check quotes, commas and brackets there.',
      cause,
    });
  }
  const half = /\\u[dD][89a-fA-F]/.test(text) ? loneSurrogate(value) : null;
  if (half === null) return value;
  throw new Kind(
    `a text contains half a surrogate pair (\\u${half.charCodeAt(0).toString(16)}), which is not a character`,
    {
      where,
      next: 'Write the whole character, or remove it: the text was cut in the middle of it.',
    },
  );
}

function withExactIntegers(text: string): string {
  return text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g, (found) =>
    /^-?\d+$/.test(found) && !Number.isSafeInteger(Number(found)) ? `"${found}"` : found,
  );
}

function loneSurrogate(value: unknown): string | null {
  if (typeof value === 'string') return /\p{Surrogate}/u.exec(value)?.[0] ?? null;
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, one] of Object.entries(value)) {
    const found = loneSurrogate(key) ?? loneSurrogate(one);
    if (found !== null) return found;
  }
  return null;
}

/** Characters of a value in a message. */
const MAX_SHOWN = 60;

/** A value for a message, as JSON of at most about 60 characters. Bytes are shown by their number, long texts by their beginning. */
export function inBrief(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  const text = JSON.stringify(value, (_, one: unknown) => {
    if (one instanceof Uint8Array) return `${one.length} bytes`;
    return typeof one === 'string' && one.length > MAX_SHOWN ? `${one.slice(0, MAX_SHOWN)}\u2026` : one;
  });
  return text.length > MAX_SHOWN + 3 ? `${text.slice(0, MAX_SHOWN)}\u2026` : text;
}
