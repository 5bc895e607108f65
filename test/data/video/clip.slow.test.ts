import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { DataError, EngineError } from '../../../src/core/errors.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import { readClip, readClipNow } from '../../../src/data/video/clip.js';
import { writeMp4s } from '../../../src/data/video/ffmpeg.js';
import type { Sampling } from '../../../src/data/video/sampling.js';
import { testFolder } from '../../support/folder.js';
import {
  cutOff,
  ffmpeg,
  frameShown,
  H264,
  hasFfmpeg,
  loseChapters,
  markCut,
  markTurned,
  whiteCorner,
  writeOddVideo,
} from './odd_files.js';

const folder = testFolder('clip');
const file = (name: string): string => join(folder, name);
const sampling: Sampling = { minFrames: 4, maxFrames: 8, interval: 0.5, segments: null };

async function refusal(path: string): Promise<string> {
  const error: unknown = await readClip(path, sampling, 'list.json:sample 7').catch((cause: unknown) => cause);
  if (!(error instanceof DataError)) throw new Error(`no refusal of ${path}`, { cause: error });
  return error.toText().replaceAll(folder, '…');
}

describe.skipIf(!hasFfmpeg)('readClip (skipped without ffmpeg)', () => {
  it('reads the frames that are asked for, and when they are shown', async () => {
    writeOddVideo(file('plain.mp4'), { frames: 30 });
    const { frames, times, seconds } = await readClip(file('plain.mp4'), sampling, 'here');
    expect(frames.map(frameShown)).toEqual([0, 5, 11, 17, 23, 29]);
    expect(frames.map(({ width, height }) => `${width}x${height}`)).toEqual(Array(6).fill('48x32'));
    expect(times.map((time) => Number(time.toFixed(3)))).toEqual([0, 0.5, 1.1, 1.7, 2.3, 2.9]);
    expect(seconds).toBeCloseTo(2.9, 2);
  });

  it('goes by times where frames are not evenly spaced, with frames that are stored out of order', async () => {
    const video = { frames: 20, step: 0.05, drift: 0.01, coding: [...H264, '-bf', '3'] };
    writeOddVideo(file('drift.mp4'), video);
    const { frames, times } = await readClip(file('drift.mp4'), { ...sampling, maxFrames: 4 }, 'here');
    // Times go from 0 to 4.56: those seen at 0, 1.52, 3.04 and 4.56.
    expect(frames.map(frameShown)).toEqual([0, 10, 15, 19]);
    expect(times.map((time) => Number(time.toFixed(2)))).toEqual([0, 1.5, 3, 4.56]);
  });

  it('counts none of the frames of VP8 that are never shown', async () => {
    const drawn = ['-f', 'lavfi', '-i', 'testsrc2=s=96x64:r=15:d=6', '-c:v', 'libvpx', '-b:v', '100k'];
    const hidden = ['-auto-alt-ref', '1', '-lag-in-frames', '25', '-passlogfile', file('vp8')];
    for (const pass of ['1', '2']) ffmpeg([...drawn, ...hidden, '-pass', pass, '-y', file('hidden.webm')]);
    const { frames, times } = await readClip(file('hidden.webm'), sampling, 'here');
    expect(frames).toHaveLength(8);
    expect(times[0]).toBe(0);
    expect(times[7]).toBeCloseTo(89 / 15, 2);
  });

  it('shows each frame once where a short file does not say when it begins', async () => {
    const coding = ['-r', '10', '-c:v', 'libx264', '-qp', '4', '-pix_fmt', 'yuv420p', '-f', 'matroska'];
    writeOddVideo(file('two.mkv'), { frames: 2, coding });
    const { frames, seconds } = await readClip(file('two.mkv'), { ...sampling, minFrames: 2 }, 'here');
    expect(frames.map(frameShown)).toEqual([0, 1]);
    expect(seconds).toBeCloseTo(0.2, 6);
  });

  it('counts how long the last frame stays where its packet does not say', async () => {
    const coding = [...H264, '-r', '5', '-video_track_timescale', '600'];
    writeOddVideo(file('clock.mp4'), { frames: 20, step: 0.2, coding });
    const { frames, seconds } = await readClip(
      file('clock.mp4'),
      { ...sampling, interval: 0.2, maxFrames: 40 },
      'here',
    );
    expect(seconds).toBeCloseTo(4, 6);
    expect(frames).toHaveLength(20);
  });

  it.each([
    { rotate: 90 as const, size: '32x48', corner: 'upper right' },
    { rotate: 180 as const, size: '48x32', corner: 'lower right' },
    { rotate: 270 as const, size: '32x48', corner: 'lower left' },
  ])('turns a video upright that is marked as to be turned by $rotate degrees', async ({ rotate, size, corner }) => {
    writeOddVideo(file('upright.mp4'), { frames: 8 });
    const turned = file(`rotated_${rotate}.mp4`);
    markTurned(file('upright.mp4'), turned, rotate);
    const { frames } = await readClip(turned, sampling, 'here');
    expect(`${frames[0].width}x${frames[0].height}`).toBe(size);
    expect(whiteCorner(frames[0])).toBe(corner);
    expect(frames.map(frameShown)).toEqual([0, 2, 4, 7]);
  });

  it('leaves out what an edit list cuts off', async () => {
    writeOddVideo(file('whole.mp4'), { frames: 30, coding: [...H264, '-g', '30', '-bf', '0'] });
    ffmpeg(['-ss', '1.05', '-i', file('whole.mp4'), '-c', 'copy', '-y', file('cut.mp4')]);
    const { frames } = await readClip(file('cut.mp4'), { ...sampling, maxFrames: 4 }, 'here');
    expect(frames.map(frameShown)).toEqual([11, 17, 23, 29]);
  });

  it('leaves out what an edit list cuts off at both ends, of frames far from any that stands by itself', async () => {
    for (const between of ['0', '2']) {
      writeOddVideo(file('trimmed.mp4'), { frames: 30, coding: [...H264, '-g', '5', '-bf', between] });
      markCut(file('trimmed.mp4'), 1250, 1000);
      const { frames } = await readClip(file('trimmed.mp4'), { ...sampling, maxFrames: 4 }, 'here');
      // 1.25 s lies in frame 12, which is not shown from its beginning.
      expect(frames.map(frameShown)).toEqual([13, 16, 19, 22]);
    }
  });

  it('reads a whole video of which ffmpeg only misses the chapters', async () => {
    writeOddVideo(file('plain.mp4'), { frames: 8 });
    const chapters = [0, 400].map((at) => `[CHAPTER]\nTIMEBASE=1/1000\nSTART=${at}\nEND=${at + 400}\ntitle=one\n`);
    writeFileSync(file('chapters.txt'), `;FFMETADATA1\n${chapters.join('')}`);
    const [video, words] = [file('plain.mp4'), file('chapters.txt')];
    ffmpeg(['-i', video, '-i', words, '-map_metadata', '1', '-c', 'copy', '-y', file('chapters.mp4')]);
    loseChapters(file('chapters.mp4'));
    const { frames } = await readClip(file('chapters.mp4'), sampling, 'here');
    expect(frames.map(frameShown)).toEqual([0, 2, 4, 7]);
  });

  it('has one clear message for every file that is no whole video', async () => {
    writeOddVideo(file('front.mp4'), { frames: 30, coding: [...H264, '-movflags', 'faststart'] });
    cutOff(file('front.mp4'), file('end_missing.mp4'), 0.6);
    writeOddVideo(file('back.mp4'), { frames: 30 });
    cutOff(file('back.mp4'), file('index_missing.mp4'), 0.6);
    writeOddVideo(file('three.mp4'), { frames: 3 });
    ffmpeg(['-f', 'lavfi', '-i', 'sine=d=1', '-c:a', 'aac', '-y', file('sound.mp4')]);
    writeFileSync(file('words.mp4'), 'no video');
    writeFileSync(file('list.m3u8'), '#EXTM3U\n#EXTINF:1,\nfront.mp4\n#EXT-X-ENDLIST\n');
    const names = [
      'end_missing.mp4',
      'index_missing.mp4',
      'three.mp4',
      'sound.mp4',
      'words.mp4',
      'list.m3u8',
      'no.mp4',
    ];
    const told = [];
    for (const name of names) told.push(await refusal(file(name)));
    expect(told.join('\n')).toMatchInlineSnapshot(`
      "list.json:sample 7: …/end_missing.mp4: it ends early: at least 946 bytes are missing
        Fetch or encode the video again, or leave this sample out.
      list.json:sample 7: …/index_missing.mp4: it ends early: at least 946 bytes are missing
        Fetch or encode the video again, or leave this sample out.
      list.json:sample 7: …/three.mp4: it has 3 frames, but at least 4 are needed
        Correct the counts of this sample, lower min_frames, or leave it out.
      list.json:sample 7: …/sound.mp4: it has no video stream
        Fetch or encode the video again, or leave this sample out.
      list.json:sample 7: …/words.mp4: it is not a supported video (it begins with 'no video'); allowed: .mp4, .mov, .mkv, .webm
        Fetch or encode the video again, or leave this sample out.
      list.json:sample 7: …/list.m3u8: it is not a supported video (it begins with '#EXTM3U'); allowed: .mp4, .mov, .mkv, .webm
        Fetch or encode the video again, or leave this sample out.
      list.json:sample 7: there is no video …/no.mp4
        Correct its path, or leave this sample out."
    `);
  });

  it('does not take a name for an option or a protocol', async () => {
    expect(await refusal('-version')).toContain('there is no video -version');
    expect(await refusal('concat:a.mp4|b.mp4')).toContain('there is no video');
  });

  it('explains how ffmpeg is installed if it is not', async () => {
    writeOddVideo(file('there.mp4'), { frames: 4 });
    const path = process.env['PATH'];
    process.env['PATH'] = folder;
    try {
      const reading = readClip(file('there.mp4'), sampling, 'here');
      await expect(reading).rejects.toThrow(EngineError);
      await expect(reading).rejects.toMatchObject({ next: expect.stringContaining('apt install ffmpeg') as string });
    } finally {
      process.env['PATH'] = path;
    }
  });
});

describe('what keeps a program from its work', () => {
  it.each([
    { how: 'may not be run', mode: 0o644, program: 'exit 0', told: /ffprobe cannot be started \(spawn.*EACCES\)/ },
    { how: 'is ended from outside', mode: 0o755, program: 'kill -9 $$', told: /ffprobe was ended by SIGKILL/ },
  ])('is not laid to the video: ffprobe $how', async ({ mode, program, told }) => {
    const programs = file(`programs_${mode}`);
    mkdirSync(programs);
    writeFileSync(join(programs, 'ffprobe'), `#!/bin/sh\n${program}\n`, { mode });
    writeFileSync(file('any.mp4'), '');
    vi.stubEnv('PATH', programs);
    try {
      const reading = readClip(file('any.mp4'), sampling, 'here');
      await expect(reading).rejects.toThrow(EngineError);
      await expect(reading).rejects.toThrow(told);
      const look = () => readClipNow(file('any.mp4'), sampling, 'here');
      expect(look).toThrow(EngineError);
      expect(look).toThrow(told);
    } finally {
      vi.unstubAllEnvs();
    }
  });
});

describe.skipIf(!hasFfmpeg)('writeMp4s (skipped without ffmpeg)', () => {
  const flat = (level: number): RgbImage => ({ width: 32, height: 16, data: new Uint8Array(32 * 16 * 3).fill(level) });
  const clips = [[40, 120, 200, 90], [60], [10, 70]].map((levels) => levels.map(flat));

  it('writes what readClip reads, the same bytes each time', async () => {
    const [one, other] = [file('one'), file('%d other')];
    for (const place of [one, other]) {
      mkdirSync(place);
      expect(await writeMp4s(place, clips, 4)).toEqual(['00000.mp4', '00001.mp4', '00002.mp4']);
    }
    const levels = [];
    for (const [i, { length }] of clips.entries()) {
      const path = join(one, `0000${i}.mp4`);
      expect(readFileSync(path).equals(readFileSync(join(other, `0000${i}.mp4`)))).toBe(true);
      const all = { ...sampling, minFrames: length };
      const { frames, times, seconds } = await readClip(path, all, 'here');
      expect([...times, seconds]).toEqual(Array.from({ length: length + 1 }, (_, frame) => frame / 4));
      levels.push(frames.map(({ data }) => Math.round(data[100] / 10)));
    }
    expect(levels).toEqual([[4, 12, 20, 9], [6], [1, 7]]);
  });

  it('writes a single clip', async () => {
    mkdirSync(file('single'));
    expect(await writeMp4s(file('single'), clips.slice(0, 1), 4)).toEqual(['00000.mp4']);
    const { frames } = await readClip(join(file('single'), '00000.mp4'), { ...sampling, interval: 0.1 }, 'here');
    expect(frames.map(({ data }) => Math.round(data[100] / 10))).toEqual([4, 12, 20, 9]);
  });

  it('reports what ffmpeg refuses', async () => {
    const frame = { width: 31, height: 16, data: new Uint8Array(31 * 16 * 3) };
    await expect(writeMp4s(folder, [[frame]], 4)).rejects.toThrow(/cannot write the videos/);
  });
});
