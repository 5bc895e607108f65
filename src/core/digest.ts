/** Digests of files, read in chunks: a model need not fit into memory, nor into one read. */
import { createHash, type Hash } from 'node:crypto';
import { closeSync, constants, createReadStream, fstatSync, openSync, readSync } from 'node:fs';
import { requirePlain } from './plain_file.js';

const PIECE_BYTES = 8 * 1024 * 1024;

/** The hexadecimal digest of a file, SHA-256 by default, without blocking. Rejects with the system's error for an unreadable file. */
export async function digestOfFile(path: string, hash: Hash = createHash('sha256')): Promise<string> {
  for await (const piece of createReadStream(path, { highWaterMark: PIECE_BYTES })) hash.update(piece as Uint8Array);
  return hash.digest('hex');
}

/** The SHA-256 of a file, blocking. Raises the system's error, and RunError for anything but a plain file. */
export function digestOfFileSync(path: string): string {
  const hash = createHash('sha256');
  const piece = new Uint8Array(PIECE_BYTES);
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    requirePlain(fstatSync(file), path);
    for (let read = readSync(file, piece); read > 0; read = readSync(file, piece)) hash.update(piece.subarray(0, read));
  } finally {
    closeSync(file);
  }
  return hash.digest('hex');
}
