/**
 * All reads of a run's files go through here. Many people and programs write to run folders: a file may be an endless pipe, a link to a
 * device, or larger than memory. This module opens only plain files of limited size, and opening never blocks.
 */
import { closeSync, constants, fstatSync, openSync, readSync, statSync, type Stats } from 'node:fs';
import { RunError } from './errors.js';

export const MEBIBYTE = 2 ** 20;

/** Size limit of files that are read at once and parsed: a record, a state, an image. */
export const MAX_BYTES = 64 * MEBIBYTE;

/** The file, or a folder of its path, does not exist. */
const ABSENT: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR']);

/**
 * A descriptor for reading a plain file, also through links. Null if there is none. Raises RunError for a pipe, a device, a socket or a
 * folder, for a file of more than `most` bytes, and if the system refuses.
 */
export function openPlain(path: string, most = Infinity): number | null {
  let file: number;
  try {
    const there = statSync(path, { throwIfNoEntry: false });
    if (there === undefined) return null;
    // Checked before opening: opening a device can have effects, and opening a pipe wakes its writer.
    requirePlain(there, path, most);
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (cause) {
    if (cause instanceof RunError) throw cause;
    if (ABSENT.has((cause as NodeJS.ErrnoException).code ?? '')) return null;
    throw unreadable(path, cause);
  }
  try {
    // Another file may have replaced it meanwhile.
    requirePlain(fstatSync(file), path, most);
    return file;
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

function unreadable(path: string, cause: unknown): RunError {
  const { code = '' } = cause as NodeJS.ErrnoException;
  return new RunError(`cannot read the file${code === '' ? '' : ` (${code})`}`, {
    where: path,
    ...(code === 'EACCES'
      ? { next: 'No permission to read the file or enter its folder: ask its owner, or change the permissions.' }
      : {}),
    cause,
  });
}

/** Raises RunError unless this is a plain file of at most `most` bytes. */
export function requirePlain(found: Stats, path: string, most = Infinity): void {
  if (!found.isFile()) {
    throw new RunError(`this is ${kindOf(found)}, not a plain file`, {
      where: path,
      next: 'Check who put it there. Move it away, or restore the file from a copy.',
    });
  }
  if (found.size > most) throw tooLarge(path, most);
}

function kindOf(found: Stats): string {
  if (found.isFIFO()) return 'a named pipe (FIFO)';
  if (found.isDirectory()) return 'a folder';
  if (found.isSocket()) return 'a socket';
  return 'a device';
}

function tooLarge(path: string, most: number): RunError {
  return new RunError(`this has more than ${sizeOf(most)}, more than any such file`, {
    where: path,
    next: 'Check who put it there. Move it away, or restore the file from a copy.',
  });
}

function sizeOf(bytes: number): string {
  return bytes >= MEBIBYTE ? `${Math.floor(bytes / MEBIBYTE)} MiB` : `${bytes} bytes`;
}

/** All bytes of a plain file. Null if there is none. Raises the RunErrors of `openPlain`, also for a file that grows beyond `most` while it is read. */
export function readPlain(path: string, most = MAX_BYTES): Buffer | null {
  const file = openPlain(path, most);
  if (file === null) return null;
  try {
    const pieces: Buffer[] = [];
    let total = 0;
    // The reported size is not trusted: files of /proc report 0.
    for (let size = fstatSync(file).size; ; size = 0) {
      const piece = Buffer.allocUnsafe(Math.max(size - total, 0) + 4096);
      const read = readSync(file, piece, 0, piece.length, null);
      if (read === 0) break;
      total += read;
      if (total > most) throw tooLarge(path, most);
      pieces.push(piece.subarray(0, read));
    }
    return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces, total);
  } catch (cause) {
    if (cause instanceof RunError) throw cause;
    throw unreadable(path, cause);
  } finally {
    closeSync(file);
  }
}

/** Like `readPlain`, but returns text. */
export function readPlainText(path: string, most = MAX_BYTES): string | null {
  return readPlain(path, most)?.toString('utf8') ?? null;
}
