import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { qwenMarks, tokensOf, withImages, withInputWords } from '../../../src/models/images/vision_input.js';
import {
  openImageProcessor,
  ImageProcessor,
  type PixelLimits,
  plainProcessor,
  processorFilesOf,
  PROCESSOR_FILE,
  smartSize,
  VIDEO_PROCESSOR_FILE,
} from '../../../src/models/images/processor.js';
import { evenClip } from '../../support/even_clip.js';
import { testFolders } from '../../support/folder.js';

interface Smart {
  readonly height: number;
  readonly width: number;
  readonly factor: number;
  readonly min_pixels: number;
  readonly max_pixels: number;
  readonly expected: readonly [number, number];
}

const { smart } = JSON.parse(readFileSync(new URL('./fixtures/resized.json', import.meta.url), 'utf8')) as {
  readonly smart: readonly Smart[];
};

const sizes = { patch_size: 4, temporal_patch_size: 2, spatial_merge_size: 2 };
const folder = testFolders('processor');
const limits = { min_pixels: 64, max_pixels: 4096 };
const grey = (width: number, height: number, byte = 128) => ({
  width,
  height,
  data: new Uint8Array(width * height * 3).fill(byte),
});

describe('the size of an image', () => {
  it.each(smart)(
    'is that of transformers: $height x $width by $factor',
    ({ height, width, factor, expected, ...limits }) => {
      const found = smartSize(height, width, factor, limits);
      expect([found.height, found.width]).toEqual(expected);
    },
  );
});

it('makes as many tokens of 200 images as the processor of transformers, with the sizes of Qwen3-VL', () => {
  const { limits: size, images } = JSON.parse(
    readFileSync(new URL('./fixtures/token_counts.json', import.meta.url), 'utf8'),
  ) as { readonly limits: object; readonly images: readonly (readonly [number, number, number])[] };
  const path = folder();
  const half = [0.5, 0.5, 0.5];
  const colors = { image_mean: half, image_std: half };
  const json = { image_processor_type: 'Qwen2VLImageProcessorFast', size, patch_size: 16, ...colors };
  writeFileSync(join(path, PROCESSOR_FILE), JSON.stringify(json));
  // Those of clips are for the frames of a whole clip together.
  const clips = { video_processor_type: 'Qwen3VLVideoProcessor', size: { longest_edge: 9, shortest_edge: 5 } };
  writeFileSync(join(path, VIDEO_PROCESSOR_FILE), JSON.stringify(clips));
  const opened = openImageProcessor(path);
  expect(images).toHaveLength(200);
  for (const [height, width, count] of images) expect(opened.tokensOf({ width, height })).toBe(count);
  expect(opened.settings.video).toEqual({ min_pixels: 65536, max_pixels: 16777216 });
});

it('makes the frames, times and tokens of 200 clips that the processor of Qwen3-VL makes', async () => {
  const { limits: ofFrames, clips } = JSON.parse(
    readFileSync(new URL('./fixtures/clips.json', import.meta.url), 'utf8'),
  ) as {
    readonly limits: PixelLimits;
    readonly clips: readonly {
      readonly height: number;
      readonly width: number;
      readonly rate: number;
      readonly shown: readonly number[];
      readonly text: string;
    }[];
  };
  const { settings } = plainProcessor({ ...sizes, patch_size: 16 }, ofFrames);
  const timing = new ImageProcessor(settings, 'timed steps');
  expect(clips).toHaveLength(200);
  for (const { height, width, rate, shown, text } of clips) {
    const frame = grey(width, height);
    const clip = { frames: shown.map(() => frame), times: shown.map((place) => place / rate), seconds: 0 };
    const inputs = await timing.video(clip, 'here');
    const words = withInputWords('<|vision_start|><|video_pad|><|vision_end|>', inputs, qwenMarks, 'here');
    let next = 0;
    expect(words.replaceAll('<|video_pad|>', () => String(tokensOf(inputs[next++].grid, settings.sizes)))).toBe(text);
    expect(timing.mostClipTokens(shown.length)).toBeGreaterThanOrEqual(
      inputs.reduce((sum, { grid }) => sum + tokensOf(grid, settings.sizes), 0),
    );
  }
});

describe('a processor', () => {
  const processor = plainProcessor(sizes, limits);

  it('repeats the last frame of a clip that ends within a patch', async () => {
    const frames = [grey(16, 8, 1), grey(16, 8, 2), grey(16, 8, 3)];
    const [clip] = await processor.video(evenClip(frames, 0.5), 'here');
    expect(clip.grid).toEqual({ steps: 2, rows: 2, columns: 4 });
    expect(clip.frames.map(({ data }) => data[0])).toEqual([1, 2, 3, 3]);
    expect(clip.secondsPerStep).toBe(1);
  });

  it("shows a clip's frames as images of their own in the size of a frame, of whatever sizes they are", async () => {
    const two = plainProcessor(sizes, limits, { min_pixels: 64, max_pixels: 128 });
    const stills = await two.stills([grey(32, 16, 1), grey(8, 8, 2)], 'here');
    expect(stills.map(({ kind, grid, secondsPerStep }) => ({ kind, grid, secondsPerStep }))).toEqual([
      { kind: 'image', grid: { steps: 1, rows: 2, columns: 4 }, secondsPerStep: 0 },
      { kind: 'image', grid: { steps: 1, rows: 2, columns: 2 }, secondsPerStep: 0 },
    ]);
    expect(stills.map(({ frames }) => frames.map(({ data }) => data[0]))).toEqual([[1], [2]]);
  });

  it.each([
    ['without frames', () => processor.video(evenClip([], 1), 'clip.mp4'), 'no frames'],
    [
      'of frames of two sizes',
      () => processor.video(evenClip([grey(8, 8), grey(8, 16)], 1), 'clip.mp4'),
      '8x8 and of 8x16',
    ],
    ['that is a thread', async () => processor.image(grey(201, 1), 'clip.mp4'), 'ratio of at most 200'],
  ])('rejects a image %s', async (_, make, message) => {
    await expect(make()).rejects.toThrow(
      expect.objectContaining({
        code: 'data',
        where: 'clip.mp4',
        message: expect.stringContaining(message) as string,
      }) as Error,
    );
  });

  it('lets others work between any two frames, whichever clips they are of', async () => {
    const clips = [1, 2].map(() => processor.video(evenClip([grey(16, 8), grey(16, 8), grey(16, 8)], 1), 'here'));
    let turns = 0;
    const turn = (): void => {
      turns += 1;
      next = setImmediate(turn);
    };
    let next = setImmediate(turn);
    await Promise.all(clips);
    clearImmediate(next);
    expect(turns).toBeGreaterThanOrEqual(5);
  });

  it('is read from its file, as old files and as newer ones say it', () => {
    const path = folder();
    for (const [name, text] of Object.entries(processorFilesOf(processor.settings))) {
      writeFileSync(join(path, name), text);
    }
    expect(openImageProcessor(path).settings).toEqual(processor.settings);
    writeFileSync(join(path, PROCESSOR_FILE), JSON.stringify({ size: { shortest_edge: 100, longest_edge: 200 } }));
    writeFileSync(join(path, VIDEO_PROCESSOR_FILE), JSON.stringify({ max_pixels: 300 }));
    const { settings } = openImageProcessor(path, { video: { min_pixels: 1, max_pixels: 2 } });
    expect(settings.image).toEqual({ min_pixels: 100, max_pixels: 200 });
    expect(settings.video).toEqual({ min_pixels: 1, max_pixels: 2 });
    expect(settings.sizes.patch_size).toBe(14);
    expect(openImageProcessor(path).settings.video).toEqual({ min_pixels: 128 * 784, max_pixels: 300 });
  });
});

describe('the files of a processor', () => {
  it('may be one for both kinds', () => {
    const path = folder();
    const json = {
      image_processor: { min_pixels: 5, merge_size: 3 },
      video_processor: { size: { longest_edge: 9 }, merge_size: 3 },
    };
    writeFileSync(join(path, 'processor_config.json'), JSON.stringify(json));
    const { image, video, sizes: found } = openImageProcessor(path).settings;
    expect([image.min_pixels, video.max_pixels, found.spatial_merge_size]).toEqual([5, 9, 3]);
  });

  it.each([
    ['are not there', null, /there is no preprocessor_config\.json/],
    ['say what cannot be', { patch_size: -1 }, /patch_size/],
    ['leave pictures as large as they are', { do_resize: false }, /do_resize: only true/],
    ['resize by another filter', { resample: 2 }, /resample: only 3/],
    ['have sides of their own', { size: { height: 224, width: 224 } }, /size: .*"height", "width"/],
    ['are of another processor', { image_processor_type: 'CLIPImageProcessor' }, /image_processor_type: only/],
    ['cut out the centre', { do_center_crop: true, crop_size: 3 }, /do_center_crop: true/],
    ['ask for an unknown step', { sharpen: 0.5 }, /sharpen: 0\.5: the key is unknown/],
  ])('are rejected where they %s', (_, json, message) => {
    const path = folder();
    if (json !== null) writeFileSync(join(path, PROCESSOR_FILE), JSON.stringify(json));
    expect(() => openImageProcessor(path)).toThrow(message);
  });
});

describe('colors', () => {
  const opened = (json: object): ImageProcessor => {
    const path = folder();
    writeFileSync(join(path, PROCESSOR_FILE), JSON.stringify(json));
    return openImageProcessor(path);
  };
  const [mean, std] = [
    [0.1, 0.2, 0.3],
    [0.5, 0.25, 2],
  ];

  /** What transformers makes of a byte: b f where it is rescaled, then less the mean, by the deviation, where it is normalised. */
  it.each([
    ['as usual', { rescale_factor: 0.00392156862745098 }, (b: number, i: number) => (b / 255 - mean[i]) / std[i]],
    ['without normalising', { do_normalize: false }, (b: number) => b / 255],
    ['without rescaling', { do_rescale: false }, (b: number, i: number) => (b - mean[i]) / std[i]],
    ['with neither', { do_rescale: false, do_normalize: false }, (b: number) => b],
    ['by another factor', { rescale_factor: 1 / 127.5 }, (b: number, i: number) => (b / 127.5 - mean[i]) / std[i]],
  ])('%s', (_, switches, wanted) => {
    const { colours } = opened({ image_mean: mean, image_std: std, do_convert_rgb: true, ...switches }).settings;
    for (const byte of [0, 7, 255]) {
      for (const i of [0, 1, 2]) {
        expect((byte / 255 - colours.mean[i]) / colours.std[i]).toBeCloseTo(wanted(byte, i), 9);
      }
    }
  });

  it('of the usual factor are those of the file, to the bit', () => {
    const { colours } = opened({ image_mean: mean, image_std: std, rescale_factor: 0.00392156862745098 }).settings;
    expect(colours).toEqual({ mean, std });
  });

  it('of clips have to be those of images', () => {
    const path = folder();
    writeFileSync(join(path, PROCESSOR_FILE), '{}');
    writeFileSync(join(path, VIDEO_PROCESSOR_FILE), JSON.stringify({ do_normalize: false }));
    expect(() => openImageProcessor(path)).toThrow(/images and videos have different patches or colors/);
  });
});

describe('placeholders', async () => {
  const tokens = { image_token_id: 7, video_token_id: 8 };
  const processor = plainProcessor(sizes, limits);
  const image = processor.image(grey(16, 8), 'here');
  const [clip] = await processor.video(evenClip([grey(8, 8), grey(8, 8), grey(8, 8), grey(8, 8)], 1), 'here');

  it('stand for each token of their images', () => {
    expect(withImages([1, 7, 2, 8, 3], [image, clip], tokens, sizes, 'here')).toEqual([1, 7, 7, 2, 8, 8, 3]);
    expect(withImages([1, 2], [], tokens, sizes, 'here')).toEqual([1, 2]);
  });

  it('of a clip become those of its frames, each between marks of its own', async () => {
    const stills = await processor.stills([grey(8, 8), grey(8, 8)], 'here');
    const marked = 'see <|vision_start|><|video_pad|><|vision_end|> now';
    const frame = '<|vision_start|><|image_pad|><|vision_end|>';
    expect(withInputWords(marked, stills, qwenMarks, 'here')).toBe(`see ${frame}${frame} now`);
    const shown = withInputWords(`${marked}<|image_pad|>`, [...stills, image], qwenMarks, 'here');
    expect(shown).toBe(`see ${frame}${frame} now<|image_pad|>`);
    for (const text of ['<|vision_start|><|video_pad|>', '<|video_pad|><|vision_end|>']) {
      expect(() => withInputWords(text, stills, qwenMarks, 'row 3')).toThrow(
        expect.objectContaining({ where: 'row 3', message: expect.stringContaining('between the marks') as string }),
      );
    }
    expect(() => withInputWords('<|image_pad|>', stills, qwenMarks, 'row 3')).toThrow(
      'the prompt has placeholders for image, but video are given',
    );
  });

  it.each([
    [[1, 7, 7], [image], 'the prompt has placeholders for image, image, but image are given'],
    [[1, 8], [image], 'the prompt has placeholders for video, but image are given'],
    [[1], [clip], 'the prompt has placeholders for no images, but video are given'],
  ])('that do not go with the images are rejected: %j', (ids, pictures, message) => {
    expect(() => withImages(ids, pictures, tokens, sizes, 'row 3')).toThrow(message);
  });
});
