/** Draws frames that can be told apart into video files, and changes bytes of an .mp4. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import type { RgbImage } from '../../src/core/images/image.js';

/** The grey level of a frame. */
export const grey = (frame: number): number => 16 + 7 * frame;

/** The most frames whose grey levels differ. */
export const MOST_FRAMES = 34;

export function ffmpeg(args: readonly string[], input?: Uint8Array): void {
  const ended = spawnSync('ffmpeg', ['-v', 'error', ...args], { input });
  if (ended.status !== 0) throw new Error(`ffmpeg ${args.join(' ')}: ${ended.stderr.toString()}`);
}

/** An RGB picture in the frame's grey, with a white upper left corner. */
export function drawFrame(frame: number, width: number, height: number): Buffer {
  const pixels = Buffer.alloc(width * height * 3, grey(frame));
  const corner = Math.floor(width / 4) * 3;
  for (let y = 0; y < Math.floor(height / 4); y++) pixels.fill(255, y * width * 3, y * width * 3 + corner);
  return pixels;
}

/** The number of the frame that an image shows, read from its middle. */
export function frameShown({ width, height, data }: RgbImage): number {
  const [left, right] = middle(width);
  const [top, bottom] = middle(height);
  let sum = 0;
  for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) sum += data[(y * width + x) * 3];
  // Adding 0 avoids -0, which tests tell apart from 0.
  return Math.round((sum / ((right - left) * (bottom - top)) - 16) / 7) + 0;
}

function middle(side: number): [number, number] {
  return [Math.floor((side * 3) / 8), Math.max(Math.ceil((side * 5) / 8), Math.floor((side * 3) / 8) + 1)];
}

/** Which corner of an image is white. */
export function whiteCorner({ width, height, data }: RgbImage): string {
  const bright = (x: number, y: number): boolean => data[(y * width + x) * 3] > 245;
  const corners = { 'upper left': [1, 1], 'upper right': [width - 2, 1], 'lower left': [1, height - 2] };
  const found = Object.entries(corners).find(([, [x, y]]) => bright(x, y));
  return found?.[0] ?? 'lower right';
}

/** Copies only the first `share` of a file's bytes. */
export function cutOff(from: string, to: string, share: number): void {
  const bytes = readFileSync(from);
  writeFileSync(to, bytes.subarray(0, Math.floor(bytes.length * share)));
}

/** How a player transforms an image: the matrix of ISO/IEC 14496-12, in the order a, b, u, c, d, v, x, y, w. */
const TURNED = {
  90: [0, 1, 0, -1, 0, 0, 0, 0, 16384],
  180: [-1, 0, 0, 0, -1, 0, 0, 0, 16384],
  270: [0, -1, 0, 1, 0, 0, 0, 0, 16384],
  mirrored: [-1, 0, 0, 0, 1, 0, 0, 0, 16384],
} as const;

/** How an image is shown: rotated clockwise by degrees, or with left and right exchanged. */
export type Turn = keyof typeof TURNED;

/** Sets the rotation of an .mp4's pictures. */
export function markTurned(from: string, to: string, turn: Turn): void {
  const bytes = readFileSync(from);
  // The matrix begins 44 bytes after the start of the track header's name.
  const matrix = bytes.indexOf('tkhd') + 44;
  for (const [i, value] of TURNED[turn].entries()) bytes.writeInt32BE(value * 65536, matrix + 4 * i);
  writeFileSync(to, bytes);
}

/** Makes the edit list of an .mp4 show `length` ticks of the movie's clock (milliseconds by default), from `from` ticks of the track's clock on. */
export function markCut(path: string, from: number, length: number): void {
  const bytes = readFileSync(path);
  // After the box's name come 8 bytes of version and count, then the first entry: its length, and its start in the track.
  const entry = bytes.indexOf('elst') + 12;
  bytes.writeUInt32BE(length, entry);
  bytes.writeInt32BE(bytes.readInt32BE(entry + 4) + from, entry + 4);
  writeFileSync(path, bytes);
}
