/** What is drawn into video files so that each frame tells which it is, and how bytes of an .mp4 are changed. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import type { RgbImage } from '../../src/core/image.js';

/** The grey of a frame. */
export const grey = (frame: number): number => 16 + 7 * frame;

/** Frames whose greys differ. */
export const MOST_FRAMES = 34;

export function ffmpeg(args: readonly string[], input?: Uint8Array): void {
  const ended = spawnSync('ffmpeg', ['-v', 'error', ...args], { input });
  if (ended.status !== 0) throw new Error(`ffmpeg ${args.join(' ')}: ${ended.stderr.toString()}`);
}

/** A picture of RGB that is of the frame's grey, and white in its upper left corner. */
export function drawFrame(frame: number, width: number, height: number): Buffer {
  const pixels = Buffer.alloc(width * height * 3, grey(frame));
  const corner = Math.floor(width / 4) * 3;
  for (let y = 0; y < Math.floor(height / 4); y++) pixels.fill(255, y * width * 3, y * width * 3 + corner);
  return pixels;
}

/** The number of the frame that a picture shows, by its middle. */
export function frameShown({ width, height, data }: RgbImage): number {
  const [left, right] = middle(width);
  const [top, bottom] = middle(height);
  let sum = 0;
  for (let y = top; y < bottom; y++) for (let x = left; x < right; x++) sum += data[(y * width + x) * 3];
  // Never the zero below zero, which tests hold to be another.
  return Math.round((sum / ((right - left) * (bottom - top)) - 16) / 7) + 0;
}

function middle(side: number): [number, number] {
  return [Math.floor((side * 3) / 8), Math.max(Math.ceil((side * 5) / 8), Math.floor((side * 3) / 8) + 1)];
}

/** Which corner of a picture is white. */
export function whiteCorner({ width, height, data }: RgbImage): string {
  const bright = (x: number, y: number): boolean => data[(y * width + x) * 3] > 245;
  const corners = { 'upper left': [1, 1], 'upper right': [width - 2, 1], 'lower left': [1, height - 2] };
  const found = Object.entries(corners).find(([, [x, y]]) => bright(x, y));
  return found?.[0] ?? 'lower right';
}

/** The first share of a file's bytes. */
export function cutOff(from: string, to: string, share: number): void {
  const bytes = readFileSync(from);
  writeFileSync(to, bytes.subarray(0, Math.floor(bytes.length * share)));
}

/** What a player does with a picture, as the matrix of ISO/IEC 14496-12 has it: a, b, u, c, d, v, x, y, w. */
const TURNED = {
  90: [0, 1, 0, -1, 0, 0, 0, 0, 16384],
  180: [-1, 0, 0, 0, -1, 0, 0, 0, 16384],
  270: [0, -1, 0, 1, 0, 0, 0, 0, 16384],
  mirrored: [-1, 0, 0, 0, 1, 0, 0, 0, 16384],
} as const;

/** How a picture is to be shown: turned clockwise by degrees, or with left and right exchanged. */
export type Turn = keyof typeof TURNED;

/** Marks the pictures of an .mp4 as to be turned. */
export function markTurned(from: string, to: string, turn: Turn): void {
  const bytes = readFileSync(from);
  // The matrix comes 44 bytes behind the name of the track's header.
  const matrix = bytes.indexOf('tkhd') + 44;
  for (const [i, value] of TURNED[turn].entries()) bytes.writeInt32BE(value * 65536, matrix + 4 * i);
  writeFileSync(to, bytes);
}

/** Lets the edit list of an .mp4 show `length` ticks of the film's clock (milliseconds by default), from `from` ticks of the track's on. */
export function markCut(path: string, from: number, length: number): void {
  const bytes = readFileSync(path);
  // Behind its name come 8 bytes of version and count, then the first entry: its length, and where in the track it begins.
  const entry = bytes.indexOf('elst') + 12;
  bytes.writeUInt32BE(length, entry);
  bytes.writeInt32BE(bytes.readInt32BE(entry + 4) + from, entry + 4);
  writeFileSync(path, bytes);
}
