import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DataError } from '../../src/core/errors.js';
import { checkDataset, findDatalists } from '../../src/data/check.js';
import { checkFirstVideo, clipOf, openQuestions, readQuestions } from '../../src/data/conversations.js';
import { testFolders } from '../support/folder.js';
import { cutOff, frameShown, H264, hasFfmpeg, writeOddVideo } from './video/odd_files.js';

const newFolder = testFolders('conversations');

const asked = '<video>\nWhich parts are attached?\n(1) red\n(2) blue';
const answer = '<answer>(1) red (2) blue</answer>';
const sample = {
  id: 0,
  conversations: [
    { from: 'human', value: asked },
    { from: 'gpt', value: answer },
  ],
  video: 'a.mp4',
  meta: { frame_cnts: [15, 11.0], min_frames: 4, max_frames: 8, dynamic_sample: true },
};

/** A folder with a list of samples, and a file in the place of each video that is named. */
function dataset(samples: readonly unknown[], videos: readonly string[] = ['a.mp4']): string {
  const folder = newFolder();
  for (const video of videos) writeFileSync(join(folder, video), '');
  writeFileSync(join(folder, 'conversations.json'), JSON.stringify(samples));
  return folder;
}

function refusal(open: () => unknown): string {
  try {
    open();
  } catch (error) {
    if (error instanceof DataError) return error.toText();
    throw error;
  }
  throw new Error('opened');
}

describe('openQuestions', () => {
  it('reads what is asked, the answer, the files and the sampling', () => {
    const folder = dataset([sample]);
    const questions = openQuestions(folder);
    expect(questions.length).toBe(1);
    expect(questions.read(0)).toEqual({
      turns: [
        {
          role: 'user',
          parts: [{ type: 'video' }, { type: 'text', text: '\nWhich parts are attached?\n(1) red\n(2) blue' }],
        },
      ],
      expected: answer,
      video: join(folder, 'a.mp4'),
      images: [],
      meta: { minFrames: 4, maxFrames: 8, segments: [15, 11] },
    });
    expect([questions.id(0), questions.place(0)]).toEqual([
      `${basename(folder)}/conversations.json:1`,
      `${folder}/conversations.json:sample 1`,
    ]);
  });

  it('reads JSON lines, files elsewhere, earlier turns, images, and samples without meta', () => {
    const media = newFolder();
    for (const name of ['a.mp4', 'p.png', 'q.png']) writeFileSync(join(media, name), '');
    const list = join(newFolder(), 'asked.jsonl');
    const conversations = [
      { from: 'system', value: 'Be brief.' },
      { from: 'human', value: 'Parts <image> and <image>:' },
      { from: 'gpt', value: 'Yes.' },
      { from: 'human', value: 'Now <video>' },
      { from: 'gpt', value: answer },
    ];
    writeFileSync(list, `\n${JSON.stringify({ conversations, video: ['a.mp4'], image: ['p.png', 'q.png'] })}\n`);
    const questions = openQuestions(list, media);
    const { turns, images, meta } = questions.read(0);
    expect(turns.map(({ role, parts }) => `${role}: ${parts.map(({ type }) => type).join(' ')}`)).toEqual([
      'system: text',
      'user: text image text image text',
      'assistant: text',
      'user: text video',
    ]);
    expect(images).toEqual([join(media, 'p.png'), join(media, 'q.png')]);
    expect(meta).toEqual({ minFrames: null, maxFrames: null, segments: null });
    expect(questions.place(0)).toBe(`${list}:2`);
  });

  it('reads questions about images alone', () => {
    const conversations = [{ from: 'human', value: '<image> Which parts are attached?' }, sample.conversations[1]];
    const folder = dataset([{ conversations, image: 'p.png' }], ['p.png']);
    const questions = openQuestions(folder);
    expect(questions.read(0)).toMatchObject({ video: null, images: [join(folder, 'p.png')] });
    const before = questions.digest;
    writeFileSync(join(folder, 'p.png'), 'more');
    expect(openQuestions(folder).digest.files).not.toBe(before.files);
    checkFirstVideo(questions, { minFrames: 1, maxFrames: 1, interval: 1 });
  });

  it('counts segments only where the sample asks for it', () => {
    const meta = { ...sample.meta, dynamic_sample: false };
    expect(openQuestions(dataset([{ ...sample, meta }])).read(0).meta.segments).toBeNull();
  });

  it('changes its digest with what a list says and with a file of another size', () => {
    const conversations = [{ from: 'human', value: `<image>${asked}` }, sample.conversations[1]];
    const folder = dataset([{ ...sample, conversations, image: 'p.png' }], ['a.mp4', 'p.png']);
    const before = openQuestions(folder).digest;
    expect(openQuestions(folder).digest).toEqual(before);
    writeFileSync(join(folder, 'a.mp4'), 'more');
    const after = openQuestions(folder).digest;
    expect(after.ids).toBe(before.ids);
    expect(after.files).not.toBe(before.files);
    writeFileSync(join(folder, 'p.png'), 'more');
    expect(openQuestions(folder).digest.files).not.toBe(after.files);
  });

  it('reports all broken samples at once', () => {
    const turns = (human: string, gpt: string) => ({
      ...sample,
      conversations: [
        { from: 'human', value: human },
        { from: 'gpt', value: gpt },
      ],
    });
    const folder = dataset([
      sample,
      { ...sample, video: 'gone.mp4' },
      { ...sample, conversations: [{ from: 'human', value: asked }] },
      turns(asked, '<answer> </answer>'),
      turns('Which parts?', answer),
      turns(`<video>${asked}`, answer),
      { ...turns(`<image>${asked}`, answer), image: ['a.mp4', 'a.mp4'] },
      { ...sample, conversations: [{ from: 'robot', value: asked }] },
      { ...sample, meta: { ...sample.meta, min_frames: 9 } },
      { ...sample, meta: { ...sample.meta, frame_cnts: [2.5] } },
      { ...sample, meta: { dynamic_sample: true } },
      { ...sample, video: undefined },
      'words',
      { ...turns(`<image>${asked}`, answer), video: null, image: 'a.mp4' },
    ]);
    expect(refusal(() => openQuestions(folder)).replaceAll(folder, '…')).toMatchInlineSnapshot(`
      "…/conversations.json: 13 problems found
        …/conversations.json:sample 2: there is no file …/gone.mp4
        …/conversations.json:sample 3: there is no answer: the last turn is not gpt's
        …/conversations.json:sample 4: the labeled answer is empty
        …/conversations.json:sample 5: found <video> 0 times in human turns; allowed: once
        …/conversations.json:sample 6: found <video> 2 times in human turns; allowed: once
        …/conversations.json:sample 7: found 2 files of images, but <image> 1 time; allowed: as many as files
        …/conversations.json:sample 8: found a turn from 'robot'; allowed: human, gpt, system
        …/conversations.json:sample 9: meta.min_frames 9 is more than meta.max_frames 8
        …/conversations.json:sample 10: found {"frame_cnts":[2.5],"min_frames":4,"max_frames":8,"dynamic_s as 'meta'; allowed: {frame_cnts: whole numbers above 0, min_frames, max_frames, dynamic_sample: true or false}
        …/conversations.json:sample 11: meta.dynamic_sample needs meta.frame_cnts
        …/conversations.json:sample 12: found neither 'video' nor 'image'; allowed: one or both
        …/conversations.json:sample 13: found no object; allowed: {id, conversations, video or image}
        …/conversations.json:sample 14: found <video> 1 time, but no 'video'
        \`editrl data check …/conversations.json\` lists all of them, and also checks the files."
    `);
  });

  it('reports lines that are not JSON beside them', () => {
    const list = join(dataset([sample]), 'lines.jsonl');
    writeFileSync(list, `{"a":\n${JSON.stringify(sample)}\n"words"\n[1`);
    const { problems, samples } = readQuestions(list);
    expect(problems.map(({ where }) => where)).toEqual([`${list}:1`, `${list}:3`, `${list}:4`]);
    expect(samples).toHaveLength(4);
    expect(refusal(() => openQuestions(list))).toMatch(/3 problems found\n.*:1: is not JSON/);
  });

  it('says if a list cannot be read', () => {
    expect(refusal(() => openQuestions('/nowhere/list.json'))).toContain('there is no such dataset');
    const folder = dataset([]);
    expect(refusal(() => openQuestions(folder))).toContain('the list has no sample');
    writeFileSync(join(folder, 'conversations.json'), '{"a": 1}');
    expect(refusal(() => openQuestions(folder))).toContain('found no list of samples');
    writeFileSync(join(folder, 'conversations.json'), '[');
    expect(refusal(() => openQuestions(folder))).toContain('is not JSON');
  });
});

describe.skipIf(!hasFfmpeg)('videos of questions (skipped without ffmpeg)', () => {
  it('samples each segment as its sample says, and as usual if it does not', async () => {
    const folder = dataset([sample, { ...sample, meta: undefined }], []);
    writeOddVideo(join(folder, 'a.mp4'), { frames: 26 });
    const questions = openQuestions(folder);
    const usual = { minFrames: 3, maxFrames: 8, interval: 2 };
    const shown = async (index: number) => (await clipOf(questions.read(index), usual, 'here')).frames.map(frameShown);
    expect(await shown(0)).toEqual([0, 4, 9, 14, 15, 18, 21, 25]);
    expect(await shown(1)).toEqual([0, 12, 25]);
  });

  it('lists what is wrong with any of them', async () => {
    const root = newFolder();
    const folder = join(root, 'assembly', 'train');
    mkdirSync(folder, { recursive: true });
    const whole = join(folder, 'a.mp4');
    writeOddVideo(whole, { frames: 26, coding: [...H264, '-movflags', 'faststart'] });
    cutOff(whole, join(folder, 'cut.mp4'), 0.7);
    writeOddVideo(join(folder, 'short.mp4'), { frames: 3 });
    const samples = [
      sample,
      { ...sample, video: 'cut.mp4' },
      { ...sample, video: 'short.mp4', meta: { min_frames: 4, max_frames: 8 } },
      { ...sample, video: 'gone.mp4' },
      { ...sample, meta: { ...sample.meta, frame_cnts: [15, 15] } },
    ];
    writeFileSync(join(folder, 'conversations.json'), JSON.stringify(samples));
    const [list] = findDatalists(root);
    const told: string[] = [];
    const onProgress = (done: number, total: number) => told.push(`${done} of ${total}`);
    const { problems, ...report } = await checkDataset(list, { onProgress });
    expect(told).toEqual(['2 of 5', '3 of 5', '4 of 5', '5 of 5']);
    expect(report).toMatchObject({ kind: 'videos', samples: 5, sizes: ['48x32'] });
    expect(problems.map((one) => one.toText())).toEqual([
      expect.stringMatching(/sample 4: there is no file .*gone\.mp4/),
      expect.stringMatching(/sample 2: .*cut\.mp4: it ends early: at least 677 bytes/),
      expect.stringMatching(/sample 3: .*short\.mp4: it has 3 frames, but at least 4/),
      expect.stringMatching(/sample 5: .*a\.mp4: it has 26 frames.*count 30/),
    ]);
    expect(readQuestions(folder).problems).toHaveLength(1);
  });
});
