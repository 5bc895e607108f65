/** What the bytes of a file that ffmpeg refuses tell: its own words rarely say that a file was cut off, or never was a video. */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

/** What .mp4 and .mov files may begin with, and what .mkv and .webm do. */
const BOXES: readonly string[] = [
  'ftyp',
  'styp',
  'moov',
  'moof',
  'mdat',
  'free',
  'skip',
  'wide',
  'pnot',
  'sidx',
  'uuid',
];
const EBML = 0x1a45dfa3;
/** How many bytes of a file that is not a video a message shows, if they are words. */
const SHOWN_BYTES = 24;

/** Why a file is no whole video, as a message goes on; null where its form is that of one. */
export function brokenForm(path: string): string | null {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    if (size === 0) return 'it is empty';
    const first = Buffer.alloc(SHOWN_BYTES);
    const start = first.subarray(0, readSync(file, first, 0, SHOWN_BYTES, 0));
    if (start.length >= 4 && start.readUInt32BE() === EBML) return null;
    if (!BOXES.includes(start.toString('latin1', 4, 8))) return strange(start);
    const missing = endOfBoxes(file, size) - size;
    return missing > 0 ? `it ends early: at least ${missing} byte${missing === 1 ? ' is' : 's are'} missing` : null;
  } finally {
    closeSync(file);
  }
}

function strange(start: Buffer): string {
  const [words] = start.toString('latin1').split(/[\r\n]/);
  const shown = /^[\x20-\x7e]{4,}$/.test(words) ? ` (it begins with '${words}')` : '';
  return `it is no video of a kind that is read${shown}; allowed: .mp4, .mov, .mkv, .webm`;
}

/** Where the last of the boxes says that it ends, which stand one after the other (ISO/IEC 14496-12). */
function endOfBoxes(file: number, size: number): number {
  const header = Buffer.alloc(16);
  let at = 0;
  while (at < size) {
    const read = readSync(file, header, 0, 16, at);
    if (read < 8) return at + 8;
    const short = header.readUInt32BE();
    // 0: to the end of the file; 1: the length comes behind the name.
    if (short === 0 || (short === 1 && read < 16)) return size;
    const length = short === 1 ? Number(header.readBigUInt64BE(8)) : short;
    if (length < 8) return size;
    at += length;
  }
  return at;
}
