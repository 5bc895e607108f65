import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { decodePlainPng } from '../../../src/core/png.js';
import { tokensOf } from '../../../src/models/pictures/picture.js';
import { makeData } from '../../../src/recipes/video_actions/data.js';
import { openVideoTask, type VideoTask } from '../../../src/recipes/video_actions/task.js';
import { hasFfmpeg } from '../../data/video/odd_files.js';
import { testFolder } from '../../support/folder.js';
import { smallSettings } from './small.js';

const dir = testFolder('video-task');
const tiny = { counts: { labelled: 2, train: 4, validation: 3 } };
const clips = (split: string) => [{ path: join(dir, 'tiny', 'clips', split) }];
const settings = (changes: Parameters<typeof smallSettings>[0] = {}) =>
  smallSettings({ data: { dir, tiny, train: clips('train'), validation: clips('validation') }, ...changes });
const open = (changes?: Parameters<typeof smallSettings>[0]): Promise<VideoTask> =>
  openVideoTask(settings(changes), () => '');

describe.skipIf(!hasFfmpeg)('the task of video_actions (skipped without ffmpeg)', () => {
  beforeAll(() => makeData(settings(), null, () => {}));

  it('asks with the tokens of a clip where it stands, and shows its frames', async () => {
    const { task, seeing } = await open();
    await task.checkPrompts();
    const prompt = await task.validation[0].prompt(0);
    const { ids, pictures = [] } = prompt.tokens;
    const [picture] = pictures;
    expect(pictures).toHaveLength(1);
    const { sizes } = seeing.processor.settings;
    const seen = ids.filter((id) => id === seeing.tokens.video_token_id);
    expect(seen).toHaveLength(tokensOf(picture.grid, sizes));
    expect(picture.frames.map(({ width, height }) => `${width}x${height}`)).toEqual(
      Array(picture.grid.steps * 2).fill('32x32'),
    );
    expect(prompt.instruction).toMatch(/^Which parts are attached \?\n\(1\) \w+\n\(2\) \w+\n\(3\) \w+\n\(4\) \w+$/);
    expect(prompt.expected).toMatch(/^<think> .* <\/think> <answer> \(\d\) .* <\/answer>$/);
    const png = decodePlainPng((await prompt.sourcePng?.()) ?? new Uint8Array());
    expect([png?.width, png?.height]).toEqual([picture.frames.length * 34 - 2, 32]);
    expect(task.validation[0]).toMatchObject({ name: 'clips', length: 3 });
  });

  it('opens a clip once, so that what is made of it is kept', async () => {
    const { task } = await open();
    const [one, again] = [await task.validation[0].prompt(1), await task.validation[0].prompt(1)];
    expect(one.tokens.pictures?.[0]).toBe(again.tokens.pictures?.[0]);
  });

  it('refuses prompts that leave no room with their clips, before anything is trained', async () => {
    const { policy } = settings();
    const { task } = await open({ policy: { ...policy, model_context_size: 40 } });
    await expect(task.checkPrompts()).rejects.toThrow(/prompts are too long: .* model_context_size is 40/);
  });

  it('names the sample whose clip has fewer frames than are asked for', async () => {
    const own = join(dir, 'own');
    const list = JSON.parse(readFileSync(join(dir, 'tiny', 'clips', 'train', 'conversations.json'), 'utf8')) as Record<
      string,
      unknown
    >[];
    writeFileSync(`${own}.json`, JSON.stringify([{ ...list[1], meta: { min_frames: 40, max_frames: 40 } }]));
    const train = [{ path: `${own}.json`, media: clips('train')[0].path }];
    const { task } = await open({ data: { dir, tiny, train, validation: clips('validation') } });
    await expect(task.prompt(0)).rejects.toMatchObject({ where: `${own}.json:sample 1` });
    await expect(task.prompt(0)).rejects.toThrow(/has \d+ frames, and at least 40 are asked for/);
  });
});
