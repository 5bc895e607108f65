import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { readClip } from '../../../src/data/video/clip.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('clip');
afterEach(() => {
  vi.unstubAllEnvs();
});

/** Puts programs in ffmpeg's place: what they print says what the video is. */
function programs(folder: string, packets: readonly object[]): void {
  const streams = [{ codec_name: 'h264', width: 1, height: 1, time_base: '1/1000' }];
  const script = (name: string, lines: string): void => {
    writeFileSync(join(folder, name), `#!/bin/sh\n${lines}\n`);
    chmodSync(join(folder, name), 0o755);
  };
  script('ffprobe', `echo '${JSON.stringify({ streams, packets })}'`);
  script('ffmpeg', packets.map(() => `printf 'P6 1 1 255 abc'`).join('\n'));
  vi.stubEnv('PATH', `${folder}:${process.env['PATH'] ?? ''}`);
}

it('counts the times of frames from the first one, however late a video begins', async () => {
  const folder = newFolder();
  const packet = (from: number) => ({ pts_time: String(from), duration_time: '0.5', flags: 'K_' });
  programs(folder, [packet(5), packet(5.5), packet(6)]);
  const path = join(folder, 'late.mp4');
  writeFileSync(path, 'a video');
  const { times, seconds, frames } = await readClip(
    path,
    { minFrames: 3, maxFrames: 3, interval: 0.5, segments: null },
    'sample 1',
  );
  expect(times).toEqual([0, 0.5, 1]);
  expect(seconds).toBe(1.5);
  expect(frames).toHaveLength(3);
});
