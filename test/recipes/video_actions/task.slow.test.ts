import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { decodePlainPng } from '../../../src/core/images/png.js';
import { tokensOf } from '../../../src/models/images/vision_input.js';
import { clipData } from '../../../src/data/tiny/clips.js';
import { openVideoTask, type VideoTask } from '../../../src/recipes/video_actions/task.js';
import { hasFfmpeg } from '../../data/video/odd_files.js';
import { plain } from '../../data/image_files.js';
import { testFolder } from '../../support/folder.js';
import { writeSeeingBase } from '../../train/policies/vllm/seeing_base.js';
import { smallSettings } from './small.js';

const dir = testFolder('video-task');
const sizesOfNewer = { depth: 3, hidden_size: 64, num_heads: 2, deepstack_visual_indexes: [0, 1] };
const rotation = { rope_type: 'default', mrope_section: [8, 4, 4], mrope_interleaved: true };
const tiny = { counts: { labelled: 2, train: 4, validation: 3 } };
const clips = (split: string) => [{ path: join(dir, 'tiny', 'clips', split) }];
/** The samples of a list, as its file has them. */
const listOf = (split: string): Record<string, unknown>[] => {
  const file = join(clips(split)[0].path, 'conversations.json');
  return JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>[];
};
const settings = (changes: Parameters<typeof smallSettings>[0] = {}) =>
  smallSettings({ data: { dir, tiny, train: clips('train'), validation: clips('validation') }, ...changes });
const open = (changes?: Parameters<typeof smallSettings>[0]): Promise<VideoTask> =>
  openVideoTask(settings(changes), () => '');

describe.skipIf(!hasFfmpeg)('the task of video_actions (skipped without ffmpeg)', () => {
  beforeAll(() => clipData.make(settings(), null, () => {}));

  it('asks with the tokens of a clip where it stands, and shows its frames', async () => {
    const { task, seeing } = await open();
    await task.checkPrompts();
    const prompt = await task.validation[0].prompt(0);
    const { ids, images = [] } = prompt.tokens;
    const [image] = images;
    expect(images).toHaveLength(1);
    const { sizes } = seeing.processor.settings;
    const seen = ids.filter((id) => id === seeing.tokens.video_token_id);
    expect(seen).toHaveLength(tokensOf(image.grid, sizes));
    expect(image.frames.map(({ width, height }) => `${width}x${height}`)).toEqual(
      Array(image.grid.steps * 2).fill('32x32'),
    );
    expect(prompt.instruction).toMatch(/^Which parts are attached \?\n\(1\) \w+\n\(2\) \w+\n\(3\) \w+\n\(4\) \w+$/);
    expect(prompt.expected).toMatch(/^<think> .* <\/think> <answer> \(\d\) .* <\/answer>$/);
    const png = decodePlainPng((await prompt.sourcePng?.()) ?? new Uint8Array());
    expect([png?.width, png?.height]).toEqual([image.frames.length * 34 - 2, 32]);
    expect(task.validation[0]).toMatchObject({ name: 'clips', length: 3 });
  });

  it('shows images beside the clip, each where it stands', async () => {
    const own = join(dir, 'mixed');
    writeFileSync(join(clips('train')[0].path, 'part.png'), plain(32, 32, [200, 10, 10]));
    const [{ conversations, ...sample }] = listOf('train') as { conversations: { from: string; value: string }[] }[];
    const asked = { from: 'human', value: 'Which <image> parts <video> are attached <image>' };
    const files = { image: ['part.png', 'part.png'] };
    writeFileSync(`${own}.json`, JSON.stringify([{ ...sample, ...files, conversations: [asked, conversations[1]] }]));
    const train = [{ path: `${own}.json`, media: clips('train')[0].path }];
    const { policy } = settings();
    const { task, seeing } = await open({
      policy: { ...policy, model_context_size: 400 },
      data: { dir, tiny, train, validation: clips('validation') },
    });
    const { ids, images = [] } = (await task.prompt(0)).tokens;
    expect(images.map(({ kind }) => kind)).toEqual(['image', 'video', 'image']);
    const { image_token_id: image, video_token_id: video } = seeing.tokens;
    const places = ids.filter((id) => id === image || id === video);
    const { sizes } = seeing.processor.settings;
    expect(places).toEqual(
      images.flatMap(({ kind, grid }) => Array<number>(tokensOf(grid, sizes)).fill(kind === 'image' ? image : video)),
    );
  });

  it('shows frames as images of their own, between marks of their own and with the pixels of a frame', async () => {
    const videos = await open();
    const data = {
      dir,
      tiny,
      train: clips('train'),
      validation: clips('validation'),
      frames: { as: 'images' as const },
    };
    const { policy } = settings();
    const { task, seeing } = await open({ data, policy: { ...policy, model_context_size: 400 } });
    await task.checkPrompts();
    const [clip, stills] = await Promise.all([videos.task, task].map((one) => one.validation[0].prompt(0)));
    const { images: [video] = [] } = clip.tokens;
    const { ids, images = [] } = stills.tokens;
    const shown = video.frames.slice(0, images.length);
    expect(images.map(({ kind }) => kind)).toEqual(shown.map(() => 'image'));
    expect(images.flatMap(({ frames }) => frames.map(({ data: bytes }) => bytes))).toEqual(
      shown.map(({ data: bytes }) => bytes),
    );
    const { image_token_id: image, vision_start_token_id: start, vision_end_token_id: end } = seeing.tokens;
    const tokens = tokensOf(images[0].grid, seeing.processor.settings.sizes);
    const block = [start, ...Array<number>(tokens).fill(image), end];
    const from = ids.indexOf(start);
    expect(ids.slice(from, from + block.length * images.length)).toEqual(images.flatMap(() => block));
    expect(ids).not.toContain(seeing.tokens.video_token_id);
    expect(await stills.sourcePng?.()).toEqual(await clip.sourcePng?.());
  });

  it('shows Qwen3-VL the frames of a clip as images', async () => {
    const model = writeSeeingBase(join(dir, 'newer'));
    const config = join(model, 'config.json');
    const { text_config, ...base } = JSON.parse(readFileSync(config, 'utf8')) as { readonly text_config: object };
    const vision_config = { ...sizesOfNewer, out_hidden_size: 128, patch_size: 4 };
    const newer = { ...base, model_type: 'qwen3_vl', text_config: { ...text_config, head_dim: 32 }, vision_config };
    writeFileSync(
      config,
      JSON.stringify({ ...newer, text_config: { ...newer.text_config, rope_parameters: rotation } }),
    );
    const policy = { ...settings().policy, init: null, model, model_context_size: 800 };
    const data = {
      dir,
      tiny,
      train: clips('train'),
      validation: clips('validation'),
      frames: { as: 'images' as const },
    };
    const { task, seeing } = await open({ policy, data });
    const { ids, images = [] } = (await task.prompt(0)).tokens;
    expect(images.length).toBeGreaterThan(1);
    const seen = images.reduce((sum, { grid }) => sum + tokensOf(grid, seeing.processor.settings.sizes), 0);
    expect(ids.filter((id) => id === seeing.tokens.image_token_id)).toHaveLength(seen);
  });

  it('opens a clip once that is asked for twice at once', async () => {
    const { task } = await open();
    const [one, again] = await Promise.all([task.validation[0].prompt(1), task.validation[0].prompt(1)]);
    expect(one.tokens.images?.[0]).toBe(again.tokens.images?.[0]);
  });

  it('opens a clip once that two questions are about, and again where more of it is shown', async () => {
    const list = join(dir, 'twice.json');
    const [sample] = listOf('train');
    const [, gpt] = sample['conversations'] as unknown[];
    const other = { ...sample, conversations: [{ from: 'human', value: '<video>\nWhich parts ?' }, gpt] };
    const longer = { ...sample, meta: { min_frames: 4, max_frames: 4 } };
    writeFileSync(list, JSON.stringify([sample, other, longer]));
    const train = [{ path: list, media: clips('train')[0].path }];
    const { task } = await open({ data: { dir, tiny, train, validation: clips('validation') } });
    const prompts = await Promise.all([0, 1, 2].map((i) => task.promptOf(task.data.sources[0], i)));
    const images = prompts.map(({ tokens }) => tokens.images?.[0]);
    expect(prompts[1].tokens.ids).not.toEqual(prompts[0].tokens.ids);
    expect(images[1]).toBe(images[0]);
    expect(images[2]).not.toBe(images[0]);
  });

  it('opens no further clip of a batch of which one cannot be shown', async () => {
    const list = join(dir, 'batch.json');
    const [whole] = listOf('train');
    const bad = { ...whole, meta: { min_frames: 40, max_frames: 40 } };
    const others = Array.from({ length: 60 }, (_, i) => ({ ...whole, meta: { min_frames: 1, max_frames: 1 + i } }));
    writeFileSync(list, JSON.stringify([bad, ...others]));
    const train = [{ path: list, media: clips('train')[0].path }];
    const { task } = await open({ data: { dir, tiny, train, validation: clips('validation') } });
    const [source] = task.data.sources;
    const asked = await Promise.allSettled(Array.from({ length: 61 }, (_, i) => task.promptOf(source, i)));
    expect(asked.filter(({ status }) => status === 'fulfilled').length).toBeLessThan(2 * availableParallelism());
    expect(await task.promptOf(source, 60)).toMatchObject({ expected: expect.any(String) as string });
  });

  it('rejects prompts that leave no room with their clips, before anything is trained', async () => {
    const { policy } = settings();
    const { task } = await open({ policy: { ...policy, model_context_size: 40 } });
    await expect(task.checkPrompts()).rejects.toThrow(/prompts are too long: .* model_context_size is 40/);
  });

  it('names the sample whose clip has fewer frames than are asked for', async () => {
    const own = join(dir, 'own');
    writeFileSync(`${own}.json`, JSON.stringify([{ ...listOf('train')[1], meta: { min_frames: 40, max_frames: 40 } }]));
    const train = [{ path: `${own}.json`, media: clips('train')[0].path }];
    const { task } = await open({ data: { dir, tiny, train, validation: clips('validation') } });
    await expect(task.prompt(0)).rejects.toMatchObject({ where: `${own}.json:sample 1` });
    await expect(task.prompt(0)).rejects.toThrow(/has \d+ frames, but at least 40 are needed/);
  });
});
