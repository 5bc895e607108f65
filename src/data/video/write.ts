/** Writing small video files. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { call } from './ffmpeg.js';

/**
 * Writes frames of one size as .mp4 (H.264, as every player shows it; sides must be even). Equal frames give equal files with the same ffmpeg.
 * Raises EngineError where ffmpeg is not installed, and DataError where it refuses.
 */
export async function writeMp4(path: string, frames: readonly RgbImage[], framesPerSecond: number): Promise<void> {
  const [{ width, height }] = frames;
  const pixels = Buffer.concat(frames.map(({ data }) => data));
  const raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`, '-r', String(framesPerSecond)];
  const coding = ['-c:v', 'libx264', '-threads', '1', '-crf', '12', '-pix_fmt', 'yuv420p', '-fflags', '+bitexact'];
  const called = await call('ffmpeg', [...raw, '-i', 'pipe:0', ...coding, '-y', `file:${path}`], path, pixels);
  if (called.ok) return;
  throw new DataError(`ffmpeg cannot write the video: ${called.complaints.at(-1) ?? 'it gave no reason'}`, {
    where: path,
  });
}
