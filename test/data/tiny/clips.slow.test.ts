import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { clipOf, openQuestions } from '../../../src/data/conversations.js';
import {
  CLIP_SPLITS,
  clipVocabulary,
  describedSampleOf,
  drawClip,
  framesOf,
  clipData,
  sampleOf,
  type AssemblyClip,
} from '../../../src/data/tiny/clips.js';
import { PALETTE } from '../../../src/data/tiny/draw.js';
import { actionsOf, formatScore } from '../../../src/rewards/terms/format_accuracy.js';
import { hasFfmpeg } from '../video/odd_files.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('clips');
const drawn = (seed: number, count = 200): AssemblyClip[] =>
  Array.from({ length: count }, (_, i) => drawClip(seed, 'train', i));

interface Sample {
  readonly conversations: readonly { readonly value: string }[];
  readonly meta: { readonly frame_cnts: readonly number[] };
}
const samples = (clips: readonly AssemblyClip[]) => clips.map((clip, i) => sampleOf(clip, i, 'v.mp4') as Sample);

describe('clips', () => {
  it('are the same for the same seed, and others for another split or seed', () => {
    expect(drawn(3)).toEqual(drawn(3));
    expect(drawn(4)).not.toEqual(drawn(3));
    expect(drawClip(3, 'validation', 0)).not.toEqual(drawClip(3, 'train', 0));
  });

  it('show in which order parts come down to the board, and leave the others where they are', () => {
    for (const clip of drawn(3, 40)) {
      const frames = framesOf(clip);
      expect(frames).toHaveLength(clip.steps.reduce((sum, { frames: count }) => sum + count, 0));
      // The middle of a cell shows its part's colour.
      const isAt = (frame: number, column: number, row: number): boolean => {
        const { data, width } = frames[frame];
        const at = ((row * 8 + 4) * width + column * 8 + 4) * 3;
        return PALETTE[clip.parts[column].colour].every((value, c) => data[at + c] === value);
      };
      const moved = clip.steps.map(({ column }) => column);
      let first = 0;
      clip.steps.forEach(({ column, frames: count }) => {
        const last = first + count - 1;
        expect([isAt(first, column, 0), isAt(last, column, 3)]).toEqual([true, true]);
        first += count;
      });
      clip.parts.forEach((_, column) => {
        if (moved.includes(column)) return;
        const row = clip.attached.has(column) ? 3 : 0;
        expect([isAt(0, column, row), isAt(frames.length - 1, column, row)]).toEqual([true, true]);
      });
    }
  });

  it('have answers of whole form, which name the parts that move', () => {
    const clips = drawn(3);
    for (const [i, { conversations, meta }] of samples(clips).entries()) {
      const { parts, steps } = clips[i];
      const [question, { value: answer }] = conversations;
      expect(formatScore(answer, 'first')).toBe(1);
      const numbers = steps.map(({ column }) => {
        const line = question.value.split('\n').find((each) => each.endsWith(` ${parts[column].colour}`));
        return line?.slice(1, 2);
      });
      expect([...actionsOf(answer.slice(answer.indexOf('<answer>') + 8), 'numbers')]).toEqual(numbers);
      expect(meta.frame_cnts).toHaveLength(steps.length);
    }
  });
});

describe('descriptions', () => {
  it('say the same as the answer, in words of the vocabulary and in another form', () => {
    const known = new Set(clipVocabulary());
    for (const [i, clip] of drawn(3).entries()) {
      const [asked, described] = [sampleOf(clip, i, 'v.mp4'), describedSampleOf(clip, i, 'v.mp4')] as Sample[];
      const [{ value: answer }, { value: said }] = [asked.conversations[1], described.conversations[1]];
      expect(described.conversations[0]).toEqual(asked.conversations[0]);
      expect(formatScore(said, 'first')).toBe(0);
      expect(said.split(' ').every((word) => known.has(word))).toBe(true);
      const items = said.split(' then ').map((item) => item.split(' '));
      expect(answer).toContain(
        `<answer> ${items.map(([colour, number]) => `${number} ${colour}`).join(' ')} </answer>`,
      );
    }
  });
});

describe.skipIf(!hasFfmpeg)('the clips on disk (skipped without ffmpeg)', () => {
  it('are made once, and read back as they are drawn', async () => {
    const root = newFolder();
    const options = { seed: 3, sizes: { described: 2, labelled: 2, train: 6, validation: 3 }, lists: 1 };
    expect(clipData.find(root, options)).toBeNull();
    await clipData.makeIn(root, options);
    const folder = clipData.find(root, options);
    if (folder === null) throw new Error('not made');
    expect(readdirSync(join(folder, 'clips'))).toEqual([...CLIP_SPLITS]);
    const list = join(folder, 'clips', 'train', 'conversations.json');
    const before = readFileSync(list);
    await clipData.makeIn(root, options);
    expect(readFileSync(list)).toEqual(before);

    const questions = openQuestions(join(folder, 'clips', 'train'));
    expect(questions.length).toBe(6);
    const clip = drawClip(3, 'train', 4);
    const frames = framesOf(clip);
    const shown = await clipOf(questions.read(4), { minFrames: 1, maxFrames: 1, interval: 1 }, 'here');
    const ends = clip.steps.map(({ frames: count }, i) => count + (i === 0 ? 0 : clip.steps[0].frames));
    const expected = ends.flatMap((end, i) => [end - clip.steps[i].frames, end - 1]);
    expect(shown.frames).toHaveLength(expected.length);
    shown.frames.forEach(({ data }, i) => {
      const off = data.map((value, at) => Math.abs(value - frames[expected[i]].data[at]));
      expect(off.reduce((sum, one) => sum + one, 0) / off.length).toBeLessThan(8);
    });
  });

  it('are asked about several times if requested for, with the list in several orders', async () => {
    const root = newFolder();
    const options = { seed: 3, sizes: { described: 2, labelled: 2, train: 3, validation: 2 }, lists: 4 };
    await clipData.makeIn(root, options);
    const folder = clipData.find(root, options);
    if (folder === null) throw new Error('not made');
    expect(clipData.find(root, { ...options, lists: 1 })).toBeNull();
    const asked = CLIP_SPLITS.map((split) => openQuestions(join(folder, 'clips', split)));
    expect(asked.map(({ length }) => length)).toEqual([8, 2, 12, 2]);
    const train = Array.from({ length: 12 }, (_, i) => asked[2].read(i));
    expect(new Set(train.map(({ video }) => video)).size).toBe(3);
    expect(new Set(train.map(({ turns }) => JSON.stringify(turns))).size).toBeGreaterThan(9);
    const list = JSON.parse(readFileSync(join(folder, 'clips', 'train', 'conversations.json'), 'utf8')) as unknown[];
    expect(list[0]).toEqual(sampleOf(drawClip(3, 'train', 0), 0, '00000.mp4'));
  });
});
