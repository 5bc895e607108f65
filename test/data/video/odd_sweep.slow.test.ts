import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { KINDS } from '../../fuzz/video_kinds.js';
import { checkOddVideos, makeOddVideo, readOddVideo, type OddResult } from '../../fuzz/videos.js';
import { testFolder } from '../../support/folder.js';
import { hasFfmpeg } from './odd_files.js';

const folder = testFolder('odd-sweep');
/** A share of all kinds that is soon made; `npm run fuzz:videos` goes over all. */
const SHARE = [
  ...['vp9', 'turned_90', 'with_cover', 'coarse_clock', 'cut', 'two_frames'],
  ...['truncated_mkv', 'truncated_fragments', 'sizes_wrong', 'empty', 'words', 'sound_alone'],
];
const numberOf = (kind: string): number => Object.keys(KINDS).indexOf(kind);

describe.skipIf(!hasFfmpeg)('odd video files (skipped without ffmpeg)', () => {
  it('give the frames that are seen at the times asked for, or one clear message', async () => {
    const results: OddResult[] = [];
    for (const kind of SHARE) results.push(await readOddVideo(makeOddVideo(folder, 'ci', numberOf(kind))));
    expect(results.filter(({ wrong }) => wrong !== null)).toEqual([]);
    expect(results.filter(({ message }) => message !== null).length).toBeGreaterThan(4);
    expect(await checkOddVideos(folder, results)).toEqual([]);
  });

  it('are identified by their frames: another file in the place of one is noticed', async () => {
    const other = join(folder, 'other');
    mkdirSync(other);
    const whole = makeOddVideo(other, 'ci', numberOf('turned_90'));
    const upright = makeOddVideo(other, 'ci', numberOf('starts_late'));
    writeFileSync(whole.path, readFileSync(upright.path));
    expect((await readOddVideo(whole)).wrong).not.toBeNull();
    const words = makeOddVideo(other, 'ci', numberOf('words'));
    expect((await readOddVideo({ ...words, expected: upright.expected })).wrong).toBe('is refused');
    expect((await readOddVideo({ ...upright, expected: words.expected })).wrong).toMatch(/frames come of it/);
  });
});
