/** Writing small video files. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DataError, InternalError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { runProgram } from './ffmpeg.js';

/**
 * Writes clips, whose frames are all of one size, as `00000.mp4`, … in a folder without such files, and gives these names (H.264, as every player
 * shows it; sides must be even). One process writes all of them: starting one for each would take longer than the work. Raises EngineError
 * where ffmpeg is not installed, and DataError where it refuses.
 */
export async function writeMp4s(
  folder: string,
  clips: readonly (readonly RgbImage[])[],
  framesPerSecond: number,
): Promise<string[]> {
  const frames = clips.flat();
  const [{ width, height }] = frames;
  const ends = clips.map(({ length }) => length).map((_, i, lengths) => sum(lengths.slice(0, i + 1)));
  const raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`, '-r', String(framesPerSecond)];
  // Every frame stands by itself, so that a file may begin with any.
  const coding = ['-c:v', 'libx264', '-threads', '1', '-crf', '12', '-g', '1', '-pix_fmt', 'yuv420p'];
  const cuts = ['-f', 'segment', '-segment_frames', ends.join(','), '-reset_timestamps', '1'];
  const form = ['-segment_format', 'mp4', '-fflags', '+bitexact', '-flags', '+bitexact'];
  const place = `file:${join(folder, '%05d.mp4').replaceAll('%', '%%').replace('%%05d', '%05d')}`;
  const pixels = Buffer.concat(frames.map(({ data }) => data));
  const called = await runProgram(
    'ffmpeg',
    [...raw, '-i', 'pipe:0', ...coding, ...cuts, ...form, place],
    folder,
    pixels,
  );
  if (!called.ok) {
    throw new DataError(`ffmpeg cannot write the videos: ${called.complaints.at(-1) ?? 'it gave no reason'}`, {
      where: folder,
    });
  }
  const names = readdirSync(folder).filter((name) => /^\d{5}\.mp4$/.test(name));
  if (names.length !== clips.length) throw new InternalError(`${names.length} videos for ${clips.length} clips`);
  return names.sort();
}

function sum(values: readonly number[]): number {
  return values.reduce((all, one) => all + one, 0);
}
