/** Video files for tests: every frame is of a grey of its own, and white in its upper left corner. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import type { RgbImage } from '../../../src/core/image.js';

/** In CI a machine without ffmpeg fails; elsewhere tests that need it skip. */
export const hasFfmpeg =
  process.env['EDITRL_REQUIRE_FFMPEG'] === '1' || spawnSync('ffmpeg', ['-version']).error === undefined;

export interface OddVideo {
  readonly frames: number;
  /** Seconds from frame to frame. */
  readonly step?: number;
  /** Makes frame i come later by this times i squared. */
  readonly drift?: number;
  readonly width?: number;
  readonly height?: number;
  /** Further arguments of the encoder. */
  readonly coding?: readonly string[];
}

/** The grey of a frame. */
export const grey = (frame: number): number => 16 + 7 * frame;

export function timeOf({ step = 0.1, drift = 0 }: OddVideo, frame: number): number {
  return frame * step + frame * frame * drift;
}

export const H264 = ['-c:v', 'libx264', '-qp', '4', '-pix_fmt', 'yuv444p'];

export function ffmpeg(args: readonly string[], input?: Uint8Array): void {
  const ended = spawnSync('ffmpeg', ['-v', 'error', ...args], { input });
  if (ended.status !== 0) throw new Error(`ffmpeg ${args.join(' ')}: ${ended.stderr.toString()}`);
}

export function writeOddVideo(path: string, video: OddVideo): void {
  const { frames, step = 0.1, drift = 0, width = 48, height = 32, coding = H264 } = video;
  const pictures = Array.from({ length: frames }, (_, frame) => {
    const pixels = Buffer.alloc(width * height * 3, grey(frame));
    const corner = Math.floor(width / 4) * 3;
    for (let y = 0; y < height / 4; y++) pixels.fill(255, y * width * 3, y * width * 3 + corner);
    return pixels;
  });
  const raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`, '-r', '1000', '-i', 'pipe:0'];
  const times = ['-vf', `setpts=(N*${step}+N*N*${drift})/TB`, '-vsync', 'vfr', '-video_track_timescale', '1000'];
  ffmpeg([...raw, ...times, ...coding, '-y', path], Buffer.concat(pictures));
}

/** The first share of a file's bytes. */
export function cutOff(from: string, to: string, share: number): void {
  const bytes = readFileSync(from);
  writeFileSync(to, bytes.subarray(0, Math.floor(bytes.length * share)));
}

/** The number of the frame that a picture shows, by its middle. */
export function frameShown({ width, height, data }: RgbImage): number {
  const at = (Math.floor(height / 2) * width + Math.floor(width / 2)) * 3;
  return Math.round((data[at] - 16) / 7);
}

/** Which corner of a picture is white. */
export function whiteCorner({ width, height, data }: RgbImage): string {
  const bright = (x: number, y: number): boolean => data[(y * width + x) * 3] > 245;
  const corners = { 'upper left': [1, 1], 'upper right': [width - 2, 1], 'lower left': [1, height - 2] };
  const found = Object.entries(corners).find(([, [x, y]]) => bright(x, y));
  return found?.[0] ?? 'lower right';
}

/** What a player does with a picture, as the matrix of ISO/IEC 14496-12 has it: a, b, u, c, d, v, x, y, w. */
const TURNED: Readonly<Record<90 | 180 | 270, readonly number[]>> = {
  90: [0, 1, 0, -1, 0, 0, 0, 0, 16384],
  180: [-1, 0, 0, 0, -1, 0, 0, 0, 16384],
  270: [0, -1, 0, 1, 0, 0, 0, 0, 16384],
};

/** Marks the pictures of an .mp4 as to be turned clockwise. */
export function markTurned(from: string, to: string, clockwise: 90 | 180 | 270): void {
  const bytes = readFileSync(from);
  // The matrix comes 44 bytes behind the name of the track's header.
  const matrix = bytes.indexOf('tkhd') + 44;
  for (const [i, value] of TURNED[clockwise].entries()) bytes.writeInt32BE(value * 65536, matrix + 4 * i);
  writeFileSync(to, bytes);
}

/** Lets the edit list of an .mp4 show `length` milliseconds of it, from `from` on. */
export function markCut(path: string, from: number, length: number): void {
  const bytes = readFileSync(path);
  // Behind its name come 8 bytes of version and count, then the first entry: its length, and where in the track it begins.
  const entry = bytes.indexOf('elst') + 12;
  bytes.writeUInt32BE(length, entry);
  bytes.writeInt32BE(bytes.readInt32BE(entry + 4) + from, entry + 4);
  writeFileSync(path, bytes);
}

/** Lets a track of an .mp4 with chapters name chapters that are in no track of it. */
export function loseChapters(path: string): void {
  const bytes = readFileSync(path);
  // Its name comes behind that of the box of references.
  bytes.writeUInt32BE(99, bytes.indexOf('chap', bytes.indexOf('tref')) + 4);
  writeFileSync(path, bytes);
}
