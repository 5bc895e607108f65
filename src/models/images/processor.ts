/**
 * Turns images and frames into a model's inputs, following its `preprocessor_config.json` as transformers' processors
 * of Qwen2-VL to Qwen3-VL do.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import pLimit from 'p-limit';
import { z } from 'zod';
import { CheckpointError, DataError, must } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/png.js';
import { resizeCubic } from '../../core/images/resize.js';
import type { ClipForm, PatchSizes } from '../../compute/nets/vision/config.js';
import { readJson } from '../files.js';
import { type ColorScale, qwenMarks, type VisionInput } from './vision_input.js';

/** The smallest and the largest number of pixels of a resized image, or of each frame of a clip. */
export interface PixelLimits {
  readonly min_pixels: number;
  readonly max_pixels: number;
}

export interface ProcessorSettings {
  readonly sizes: PatchSizes;
  readonly colours: ColorScale;
  readonly image: PixelLimits;
  readonly video: PixelLimits;
}

export const PROCESSOR_FILE = 'preprocessor_config.json';
export const VIDEO_PROCESSOR_FILE = 'video_preprocessor_config.json';
/** The file in which later versions of transformers store both, under these names. */
export const NESTED_PROCESSOR_FILE = 'processor_config.json';
const NESTED = { image: 'image_processor', video: 'video_processor' } as const;

/** Resizing a frame takes tens of milliseconds, so the process handles other events between frames. */
const turns = pLimit(1);

/** The largest ratio of an image's sides. */
const MAX_RATIO = 200;

/** The mean and deviation of the colors in CLIP's training. */
const clipColors: ColorScale = {
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
};

const usual = {
  sizes: { patch_size: 14, temporal_patch_size: 2, spatial_merge_size: 2 },
  image: { min_pixels: 56 * 56, max_pixels: 28 * 28 * 1280 },
  video: { min_pixels: 128 * 28 * 28, max_pixels: 28 * 28 * 768 },
} as const;

/** Frames of a clip. */
export interface ClipFrames {
  /** All of one size. */
  readonly frames: readonly RgbImage[];
  /** The time of each frame in seconds, from the first frame of the video. */
  readonly times: readonly number[];
  /** The duration of the video in seconds. */
  readonly seconds: number;
}

/** Turns the images and clips of prompts into a model's inputs. */
export interface PromptImages {
  readonly settings: { readonly sizes: PatchSizes };
  /** An image. Raises DataError, naming `where`, for one that the model cannot see. */
  inputs(image: RgbImage, where: string): VisionInput[];
  /** A clip. Raises DataError, naming `where`, for frames that the model cannot see. */
  video(clip: ClipFrames, where: string): Promise<VisionInput[]>;
  /** Frames of a clip as images of their own. Raises the DataErrors of `inputs`. */
  stills(frames: readonly RgbImage[], where: string): Promise<VisionInput[]>;
  /** The number of tokens of an image of a size, without the words around it. */
  tokensOf(size: { readonly width: number; readonly height: number }): number;
  /** An upper bound of the number of tokens of an image, with the words around it. */
  readonly mostImageTokens: number;
  /** The same of a clip of up to `frames` frames. */
  mostClipTokens(frames: number): number;
  /** The same of frames as images. */
  mostStillsTokens(frames: number): number;
}

export class ImageProcessor implements PromptImages {
  constructor(
    readonly settings: ProcessorSettings,
    private readonly clips: Exclude<ClipForm, 'frames'> = 'one input',
  ) {}

  /** The number of tokens of an image of a size. */
  tokensOf({ width, height }: { readonly width: number; readonly height: number }): number {
    const { sizes, image: limits } = this.settings;
    const factor = sizes.patch_size * sizes.spatial_merge_size;
    const shown = smartSize(height, width, factor, limits);
    return (shown.width * shown.height) / factor ** 2;
  }

  /** An image. Raises DataError, naming `where`, if it is more than 200 times as long as it is wide. */
  image(image: RgbImage, where: string): VisionInput {
    const { sizes, colours, image: limits } = this.settings;
    const frames = [resizeCubic(image, ...sideLengths(image, sizes, limits, where))];
    return { kind: 'image', frames, grid: gridOf(frames, 1, sizes), secondsPerStep: 0, colours };
  }

  inputs(image: RgbImage, where: string): VisionInput[] {
    return [this.image(image, where)];
  }

  /**
   * A clip. The last frame is repeated to fill the model's patches. Raises DataError, naming `where`, for a clip without
   * frames or with frames of several sizes, and the DataErrors of `image`.
   */
  async video({ frames, times, seconds }: ClipFrames, where: string): Promise<VisionInput[]> {
    const { sizes, colours } = this.settings;
    const depth = sizes.temporal_patch_size;
    const [first, ...others] = frames;
    if (first === undefined) throw new DataError('the video has no frames', { where });
    const odd = others.find(({ width, height }) => width !== first.width || height !== first.height);
    if (odd !== undefined) {
      throw new DataError(
        `frames of ${first.width}x${first.height} and of ${odd.width}x${odd.height} pixels in one video; allowed: one size`,
        { where },
      );
    }
    const whole = await resizedAll(frames, this.#frameSides(first, frames.length, where));
    const steps = Math.ceil(whole.length / depth);
    while (whole.length < steps * depth) whole.push(whole.at(-1) ?? first);
    const kind = 'video';
    const grid = gridOf(whole, steps, sizes);
    if (this.clips === 'one input') {
      return [{ kind, frames: whole, grid, secondsPerStep: depth * (seconds / frames.length), colours }];
    }
    const timeOf = (frame: number): number => times[Math.min(frame, times.length - 1)];
    return Array.from({ length: steps }, (_, step) => ({
      kind,
      frames: whole.slice(step * depth, (step + 1) * depth),
      grid: { ...grid, steps: 1 },
      secondsPerStep: 0,
      colours,
      words: {
        placeholder: kind,
        isFirst: step === 0,
        before: `<${tenths((timeOf(step * depth) + timeOf((step + 1) * depth - 1)) / 2)} seconds>${qwenMarks.start}`,
        after: qwenMarks.end,
      },
    }));
  }

  /** Frames of a clip as images of their own, each in the size of a frame. Raises the DataErrors of `image`. */
  async stills(frames: readonly RgbImage[], where: string): Promise<VisionInput[]> {
    const { sizes, colours, video: limits } = this.settings;
    const made: VisionInput[] = [];
    for (const [i, frame] of frames.entries()) {
      const whole = await resizedAll([frame], sideLengths(frame, sizes, limits, where));
      // The conversation has the marks around the first one's start and the last one's end.
      const words = {
        placeholder: 'video',
        isFirst: i === 0,
        before: i === 0 ? '' : qwenMarks.start,
        after: i === frames.length - 1 ? '' : qwenMarks.end,
      } as const;
      made.push({ kind: 'image', frames: whole, grid: gridOf(whole, 1, sizes), secondsPerStep: 0, colours, words });
    }
    return made;
  }

  get mostImageTokens(): number {
    return this.#tokensIn(this.settings.image.max_pixels);
  }

  mostClipTokens(frames: number): number {
    const { sizes, video } = this.settings;
    const steps = Math.ceil(frames / sizes.temporal_patch_size);
    const { one, words } = { 'one input': { one: 0, words: 0 }, 'timed steps': { one: 1, words: MOST_STEP_WORDS } }[
      this.clips
    ];
    // The limits of timed steps are those of whole clips, whose number of frames may be rounded down by one.
    return this.#tokensIn((steps + one) * video.max_pixels) + steps * words;
  }

  mostStillsTokens(frames: number): number {
    return this.#tokensIn(frames * this.settings.video.max_pixels) + 2 * (frames - 1);
  }

  #tokensIn(pixels: number): number {
    const { patch_size, spatial_merge_size } = this.settings.sizes;
    return Math.ceil(pixels / (patch_size * spatial_merge_size) ** 2);
  }

  /** The resized width and height of a clip's frames. */
  #frameSides(frame: RgbImage, frames: number, where: string): [width: number, height: number] {
    const { sizes, video: limits } = this.settings;
    if (this.clips === 'one input') return sideLengths(frame, sizes, limits, where);
    requireRatio(frame, where);
    const { width, height } = clipFrameSize(frame, frames, sizes, limits);
    return [width, height];
  }
}

/** An upper bound of the tokens around a timed step: its marks, and the time, whose tokens have a byte or more. */
const MOST_STEP_WORDS = 2 + '<100000.0 seconds>'.length;

/** A number with one decimal as Python writes it, which rounds halves to even digits. */
function tenths(value: number): string {
  // Only .25 and .75 are exact ties in binary, so only they need a rule for ties.
  return (value % 1 === 0.25 ? value - 0.05 : value).toFixed(1);
}

/** Frames resized to one size. A frame that is shown several times is resized once. */
async function resizedAll(frames: readonly RgbImage[], side: [width: number, height: number]): Promise<RgbImage[]> {
  const made = new Map<RgbImage, RgbImage>();
  for (const frame of new Set(frames)) {
    const resized = await turns(async () => {
      await setImmediate();
      return resizeCubic(frame, ...side);
    });
    made.set(frame, resized);
  }
  return frames.map((frame) => must(made.get(frame), 'a resized frame'));
}

function gridOf(
  [{ width, height }]: readonly RgbImage[],
  steps: number,
  { patch_size }: PatchSizes,
): VisionInput['grid'] {
  return { steps, rows: height / patch_size, columns: width / patch_size };
}

function requireRatio({ width, height }: Pick<RgbImage, 'width' | 'height'>, where: string): void {
  if (Math.max(width, height) <= MAX_RATIO * Math.min(width, height)) return;
  throw new DataError(
    `found an image of ${width}x${height} pixels; allowed: sides with a ratio of at most ${MAX_RATIO}`,
    { where },
  );
}

/** The resized width and height of an image. */
function sideLengths(
  { width, height }: RgbImage,
  sizes: PatchSizes,
  limits: PixelLimits,
  where: string,
): [width: number, height: number] {
  const factor = sizes.patch_size * sizes.spatial_merge_size;
  requireRatio({ width, height }, where);
  const size = smartSize(height, width, factor, limits);
  return [size.width, size.height];
}

/**
 * The size nearest to an image's whose sides are multiples of `factor` and whose pixels are within the limits, with the
 * same aspect ratio as far as possible (transformers' `smart_resize`).
 */
export function smartSize(
  height: number,
  width: number,
  factor: number,
  { min_pixels, max_pixels }: PixelLimits,
): { readonly width: number; readonly height: number } {
  const rounded = { height: halfToEven(height / factor) * factor, width: halfToEven(width / factor) * factor };
  const pixels = rounded.height * rounded.width;
  if (pixels > max_pixels) {
    const by = Math.sqrt((height * width) / max_pixels);
    const fit = (side: number): number => Math.max(factor, Math.floor(side / by / factor) * factor);
    return { height: fit(height), width: fit(width) };
  }
  if (pixels < min_pixels) {
    const by = Math.sqrt(min_pixels / (height * width));
    const fill = (side: number): number => Math.ceil((side * by) / factor) * factor;
    return { height: fill(height), width: fill(width) };
  }
  return rounded;
}

/**
 * The size of the frames of a clip that becomes timed steps: the rule of `smartSize` over all pixels of the clip, whose
 * limits are those of its frames together (`smart_resize` of transformers' Qwen3VLVideoProcessor).
 */
export function clipFrameSize(
  frame: { readonly width: number; readonly height: number },
  frames: number,
  { patch_size, spatial_merge_size, temporal_patch_size: depth }: PatchSizes,
  { min_pixels, max_pixels }: PixelLimits,
): { readonly width: number; readonly height: number } {
  const factor = patch_size * spatial_merge_size;
  const short = Math.min(frame.width, frame.height);
  const scale = short < factor ? factor / short : 1;
  const [height, width] = [Math.trunc(frame.height * scale), Math.trunc(frame.width * scale)];
  const rounded = { height: halfToEven(height / factor) * factor, width: halfToEven(width / factor) * factor };
  // A clip shorter than a step is a step of equal frames.
  const count = Math.max(frames, depth);
  const pixels = halfToEven(count / depth) * depth * rounded.height * rounded.width;
  if (pixels > count * max_pixels) {
    const by = Math.sqrt((count * height * width) / (count * max_pixels));
    const fit = (side: number): number => Math.max(factor, Math.floor(side / by / factor) * factor);
    return { height: fit(height), width: fit(width) };
  }
  if (pixels < count * min_pixels) {
    const by = Math.sqrt((count * min_pixels) / (count * height * width));
    const fill = (side: number): number => Math.ceil((side * by) / factor) * factor;
    return { height: fill(height), width: fill(width) };
  }
  return rounded;
}

function halfToEven(x: number): number {
  const below = Math.floor(x);
  return x - below === 0.5 ? below + (below % 2) : Math.round(x);
}

const size = z.int().positive();
const three = z.tuple([z.number(), z.number(), z.number()]);
/** The names of these processors in transformers, including the suffixed ones of other backends. */
const TYPE = /^(?:Qwen2(?:_5_?)?VL(?:Image|Video)|Qwen3VLVideo)Processor(?:Fast|Pil)?$/;
const type = z.string().regex(TYPE, 'only the processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL are available').nullish();
/** Pillow's number for bicubic. */
const BICUBIC = 3;

const file = z.looseObject({
  image_processor_type: type,
  video_processor_type: type,
  do_resize: z
    .literal(true, "only true is supported: sides must be multiples of the size of a token's square")
    .nullish(),
  resample: z.literal(BICUBIC, 'only 3 (bicubic) is available').nullish(),
  do_rescale: z.boolean().nullish(),
  rescale_factor: z.number().positive().nullish(),
  do_normalize: z.boolean().nullish(),
  min_pixels: size.nullish(),
  max_pixels: size.nullish(),
  size: z.strictObject({ shortest_edge: size.nullish(), longest_edge: size.nullish() }).nullish(),
  patch_size: size.nullish(),
  temporal_patch_size: size.nullish(),
  merge_size: size.nullish(),
  image_mean: three.nullish(),
  image_std: three.nullish(),
});

const keys: ReadonlySet<string> = new Set(Object.keys(file.shape));
type ProcessorFile = z.output<typeof file>;

/**
 * The processor of a model's folder. `limits` override the files' own. Raises CheckpointError if the folder lacks its
 * files, or if one of them cannot be read or has an unsupported setting.
 */
export function openImageProcessor(
  folder: string,
  limits: { readonly image?: PixelLimits | null; readonly video?: PixelLimits | null } = {},
  form: Exclude<ClipForm, 'frames'> = 'one input',
): ImageProcessor {
  const image = readSettings(folder, PROCESSOR_FILE, NESTED.image);
  if (image === null) {
    throw new CheckpointError(`there is no ${PROCESSOR_FILE}`, {
      where: folder,
      next: `Bring it with the model, or save it in Python: AutoProcessor.from_pretrained(model).save_pretrained(folder).`,
    });
  }
  const clips = readSettings(folder, VIDEO_PROCESSOR_FILE, NESTED.video);
  // Qwen3-VL's limits are those of whole clips. Runs set those of frames.
  const hasClipLimits = clips?.video_processor_type?.startsWith('Qwen3VL') === true;
  const video = hasClipLimits ? { ...usualOfQwen3, ...clips } : (clips ?? image);
  const shared = { sizes: sizesOf(image), colours: colorsOf(image) };
  const ofVideo = { sizes: sizesOf(video), colours: colorsOf(video) };
  if (!isDeepStrictEqual(shared, ofVideo)) {
    throw new CheckpointError(
      `images and videos have different patches or colors: ${JSON.stringify(shared)} and ${JSON.stringify(ofVideo)}`,
      { where: folder, next: `Give both the same sizes and colors in ${PROCESSOR_FILE} and ${VIDEO_PROCESSOR_FILE}.` },
    );
  }
  const ownVideo = hasClipLimits ? limitsOf(image, usual.image) : limitsOf(video, usual.video);
  const settings = { ...shared, image: limits.image ?? limitsOf(image, usual.image), video: limits.video ?? ownVideo };
  return new ImageProcessor(settings, form);
}

/** Settings that Qwen3-VL's video processor has unless its file has others. */
const usualOfQwen3: ProcessorFile = { patch_size: 16, image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] };

function sizesOf({ patch_size, temporal_patch_size, merge_size }: ProcessorFile): PatchSizes {
  return {
    patch_size: patch_size ?? usual.sizes.patch_size,
    temporal_patch_size: temporal_patch_size ?? usual.sizes.temporal_patch_size,
    spatial_merge_size: merge_size ?? usual.sizes.spatial_merge_size,
  };
}

/** A byte b becomes (f b - mean) / std, which is (b / 255 - mean / 255 f) / (std / 255 f). */
function colorsOf({ do_rescale, rescale_factor, do_normalize, image_mean, image_std }: ProcessorFile): ColorScale {
  const isNormalized = do_normalize !== false;
  const mean = isNormalized ? (image_mean ?? clipColors.mean) : ([0, 0, 0] as const);
  const std = isNormalized ? (image_std ?? clipColors.std) : ([1, 1, 1] as const);
  const factor = 255 * (do_rescale === false ? 1 : (rescale_factor ?? 1 / 255));
  // Files write 1/255 with its last digits cut.
  if (Math.abs(factor - 1) < 1e-9) return { mean, std };
  const scaled = ([red, green, blue]: ColorScale['mean']): ColorScale['mean'] => [
    red / factor,
    green / factor,
    blue / factor,
  ];
  return { mean: scaled(mean), std: scaled(std) };
}

/** The processor of a model with random weights: colors from -1 to 1, unchanged. */
export function plainProcessor(sizes: PatchSizes, image: PixelLimits, video = image): ImageProcessor {
  const half = [0.5, 0.5, 0.5] as const;
  const { patch_size, temporal_patch_size, spatial_merge_size } = sizes;
  const own = { patch_size, temporal_patch_size, spatial_merge_size };
  return new ImageProcessor({ sizes: own, colours: { mean: half, std: half }, image, video });
}

/** The equivalent files of a model's folder, by their names. */
export function processorFilesOf({ sizes, colours, image, video }: ProcessorSettings): Record<string, string> {
  const shared = {
    processor_class: 'Qwen2_5_VLProcessor',
    patch_size: sizes.patch_size,
    temporal_patch_size: sizes.temporal_patch_size,
    merge_size: sizes.spatial_merge_size,
    image_mean: colours.mean,
    image_std: colours.std,
  };
  const text = (json: object): string => `${JSON.stringify(json, null, 2)}\n`;
  return {
    [PROCESSOR_FILE]: text({ image_processor_type: 'Qwen2VLImageProcessor', ...image, ...shared }),
    [VIDEO_PROCESSOR_FILE]: text({ video_processor_type: 'Qwen2VLVideoProcessor', ...video, ...shared }),
  };
}

/** Null if a folder has no setting. */
function readSettings(folder: string, name: string, nested: string): ProcessorFile | null {
  const [own, shared] = [join(folder, name), join(folder, NESTED_PROCESSOR_FILE)];
  const where = existsSync(own) ? own : shared;
  if (!existsSync(where)) return null;
  const json = readJson(where);
  const found = where === own ? json : (Object(json) as Record<string, unknown>)[nested];
  if (found === undefined) return null;
  const parsed = file.safeParse(found);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const unknown = unknownStep(parsed.data, keys);
  if (unknown === null) return parsed.data;
  throw new CheckpointError(`${unknown}: the key is unknown, so its effect on images is not supported`, {
    where,
    next: 'Remove the key if the model was trained without that step.',
  });
}

function limitsOf({ min_pixels, max_pixels, size }: ProcessorFile, otherwise: PixelLimits): PixelLimits {
  return {
    min_pixels: min_pixels ?? size?.shortest_edge ?? otherwise.min_pixels,
    max_pixels: max_pixels ?? size?.longest_edge ?? otherwise.max_pixels,
  };
}

/** Keys for the file's origin, for the form of returned arrays, or for a step that another key must enable. */
const withoutEffect: ReadonlySet<string> = new Set([
  '_processor_class',
  'auto_map',
  'feature_extractor_type',
  'image_processor_type',
  'model_input_names',
  'processor_class',
  'transformers_version',
  'video_processor_type',
  'data_format',
  'device',
  'disable_grouping',
  'input_data_format',
  'return_metadata',
  'return_tensors',
  // Every image is read as RGB.
  'do_convert_rgb',
  'crop_size',
  'default_to_square',
  'pad_size',
  // The choice of a clip's frames is a setting of the data.
  'do_sample_frames',
  'cap_pixels_per_frame',
  'max_video_tokens',
  'fps',
  'max_frames',
  'min_frames',
  'num_frames',
  'video_metadata',
]);

/**
 * The first key that is neither in `read` nor known to have no effect, with its value, for messages. Null if there is
 * none. Null, false and empty values have no effect.
 */
export function unknownStep(json: object, read: ReadonlySet<string>): string | null {
  const asks = (value: unknown): boolean =>
    value !== null && value !== false && value !== '' && (typeof value !== 'object' || Object.keys(value).length > 0);
  const found = Object.entries(json).find(([key, value]) => !read.has(key) && !withoutEffect.has(key) && asks(value));
  return found === undefined ? null : `${found[0]}: ${JSON.stringify(found[1]).slice(0, 60)}`;
}
