/** Reading files of lines piece by piece, however large they are. */
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import { RunError } from './errors.js';

const CHUNK_BYTES = 4 * 1024 * 1024;
const NEWLINE = 10;

/**
 * Calls back for every whole line of a file, in order, with its place in bytes; a torn last line is passed over. Returns the bytes of that
 * torn line: 0 where the file ends as it should, or is not there. Raises RunError where the file cannot be opened.
 */
export function scanLines(path: string, onLine: (line: string, offset: number, length: number) => void): number {
  if (!existsSync(path)) return 0;
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (cause) {
    throw new RunError('cannot read the file', { where: path, cause });
  }
  try {
    let rest: Buffer = Buffer.alloc(0);
    let restOffset = 0;
    const chunk = Buffer.alloc(CHUNK_BYTES);
    for (let read = readSync(file, chunk); read > 0; read = readSync(file, chunk)) {
      const bytes = Buffer.concat([rest, chunk.subarray(0, read)]);
      let start = 0;
      for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, start)) {
        onLine(bytes.toString('utf8', start, end), restOffset + start, end - start);
        start = end + 1;
      }
      restOffset += start;
      rest = bytes.subarray(start);
    }
    return rest.length;
  } finally {
    closeSync(file);
  }
}
