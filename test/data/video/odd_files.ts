/** Video files for tests: every frame is of a grey of its own, and white in its upper left corner. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { drawFrame, ffmpeg } from '../../fuzz/video_bytes.js';

export { cutOff, ffmpeg, frameShown, grey, markCut, markTurned, whiteCorner } from '../../fuzz/video_bytes.js';

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

export const H264 = ['-c:v', 'libx264', '-qp', '4', '-pix_fmt', 'yuv444p'];

export function writeOddVideo(path: string, video: OddVideo): void {
  const { frames, step = 0.1, drift = 0, width = 48, height = 32, coding = H264 } = video;
  const pictures = Array.from({ length: frames }, (_, frame) => drawFrame(frame, width, height));
  const raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`, '-r', '1000', '-i', 'pipe:0'];
  const times = ['-vf', `setpts=(N*${step}+N*N*${drift})/TB`, '-vsync', 'vfr', '-video_track_timescale', '1000'];
  ffmpeg([...raw, ...times, ...coding, '-y', path], Buffer.concat(pictures));
}

/** Lets a track of an .mp4 with chapters name chapters that are in no track of it. */
export function loseChapters(path: string): void {
  const bytes = readFileSync(path);
  // Its name comes behind that of the box of references.
  bytes.writeUInt32BE(99, bytes.indexOf('chap', bytes.indexOf('tref')) + 4);
  writeFileSync(path, bytes);
}
