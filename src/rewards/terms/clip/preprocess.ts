/**
 * Prepares an image for a model's vision half: the steps of Hugging Face's CLIPImageProcessor and SiglipImageProcessor,
 * read from the model's folder.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { ConfigError } from '../../../core/errors.js';
import type { RgbImage } from '../../../core/images/image.js';
import { resizeWindow, type ResizeFilter } from '../../../core/images/resize.js';
import { unknownStep } from '../../../models/images/processor.js';
import { isObject } from '../../../core/schema/walk.js';
import { readJson, firstFile } from './files.js';

interface Size {
  readonly width: number;
  readonly height: number;
}

/** The steps in order. null means that a step is left out. */
export interface Preprocessing {
  /** The shorter edge gets this length and the shape stays, or both edges are given. */
  readonly resize: { readonly shortestEdge: number } | Size | null;
  readonly filter: ResizeFilter;
  /** Cut from the center. A smaller image is surrounded by black. */
  readonly crop: Size;
  /** The factor for levels from 0 to 255. */
  readonly scale: number | null;
  /** By channel: subtracted, then divided by. */
  readonly normalize: { readonly mean: readonly number[]; readonly std: readonly number[] } | null;
}

/** Filters by Pillow's numbers. */
const FILTERS: Readonly<Record<number, ResizeFilter>> = { 2: 'linear', 3: 'cubic' };
const BICUBIC = 3;
const FILES = ['preprocessor_config.json', 'processor_config.json'];

const edge = z.int().min(1).max(4096);
const square = edge.transform((side) => ({ width: side, height: side }));
const size = z.object({ height: edge, width: edge });
const perChannel = z.array(z.number()).length(3);

const ONLY = 'only the image processors of CLIP and SigLIP are available';

/** The fields of both processors. */
const steps = z.looseObject({
  do_resize: z.boolean().default(true),
  do_rescale: z.boolean().default(true),
  rescale_factor: z
    .number()
    .positive()
    .default(1 / 255),
  do_normalize: z.boolean().default(true),
});
const sizes = z.union([
  edge.transform((side) => ({ shortestEdge: side })),
  z.object({ shortest_edge: edge }).transform(({ shortest_edge: side }) => ({ shortestEdge: side })),
  size,
]);
const cropSize = z.union([square, size]).default({ width: 224, height: 224 });

/** Defaults are those of openai/clip-vit-base-patch32. */
const clipProcessor = steps.extend({
  image_processor_type: z
    .string()
    .regex(/^CLIPImageProcessor(?:Fast|Pil)?$/, ONLY)
    .optional(),
  feature_extractor_type: z.literal('CLIPFeatureExtractor', ONLY).optional(),
  size: sizes.default({ shortestEdge: 224 }),
  resample: z.literal(BICUBIC, "only 3 (bicubic), CLIP's filter, is available").default(BICUBIC),
  do_center_crop: z.boolean().default(true),
  crop_size: cropSize,
  image_mean: perChannel.default([0.48145466, 0.4578275, 0.40821073]),
  image_std: perChannel.default([0.26862954, 0.26130258, 0.27577711]),
});
/** Defaults are those of google/siglip-base-patch16-224. */
const siglipProcessor = steps.extend({
  image_processor_type: z.string(),
  size: sizes.default({ height: 224, width: 224 }),
  resample: z.literal([2, BICUBIC], 'only 2 (bilinear) and 3 (bicubic) are available').default(BICUBIC),
  do_center_crop: z.boolean().default(false),
  crop_size: cropSize,
  image_mean: perChannel.default([0.5, 0.5, 0.5]),
  image_std: perChannel.default([0.5, 0.5, 0.5]),
});
const keys: ReadonlySet<string> = new Set(Object.keys(clipProcessor.shape));

/** The processor's fields, which newer exports put into the file of the whole processor. Null is a default that was written out. */
function ownFields(file: unknown): unknown {
  const isWhole = typeof file === 'object' && file !== null && 'image_processor' in file;
  const own: unknown = isWhole ? file.image_processor : file;
  return isObject(own) ? Object.fromEntries(Object.entries(own).filter(([, value]) => value !== null)) : own;
}

const typed = z.preprocess(ownFields, z.looseObject({ image_processor_type: z.unknown().optional() }));
const clipFile = z.preprocess(ownFields, clipProcessor);
const siglipFile = z.preprocess(ownFields, siglipProcessor);
const SIGLIP = /^SiglipImageProcessor(?:Fast|Pil)?$/;

/** Reads `preprocessor_config.json`. Raises ConfigError if it is missing, or asks for a step that is not available. */
export function readPreprocessing(folder: string): Preprocessing {
  const file = firstFile(
    FILES.map((name) => join(folder, name)),
    'preprocessor_config.json',
    folder,
  );
  // Other processors have other defaults.
  const { image_processor_type: type } = readJson(file, typed);
  const isSiglip = typeof type === 'string' && SIGLIP.test(type);
  const found = isSiglip ? readJson(file, siglipFile) : readJson(file, clipFile);
  const unknown = unknownStep(found, keys);
  if (unknown !== null) {
    throw new ConfigError(`${unknown}: this step is not known`, {
      where: file,
      next: 'Remove the key if the model was trained on images without that step.',
    });
  }
  const resize = found.do_resize ? found.size : null;
  const fixed = resize !== null && 'width' in resize ? resize : null;
  const crop = found.do_center_crop ? found.crop_size : fixed;
  if (crop === null) {
    throw new ConfigError('the model would get images of any shape: there is neither a center crop nor a fixed size', {
      where: file,
      next: 'Set do_center_crop to true and crop_size, as in openai/clip-vit-base-patch32, or a size of height and width, as in google/siglip-base-patch16-224.',
    });
  }
  return {
    resize,
    filter: FILTERS[found.resample],
    crop,
    scale: found.do_rescale ? found.rescale_factor : null,
    normalize: found.do_normalize ? { mean: found.image_mean, std: found.image_std } : null,
  };
}

/** Raises ConfigError if the size of the prepared images differs from the size that the model reads. */
export function requireSide(
  { crop }: Preprocessing,
  { vision: { image_size: side } }: { readonly vision: { readonly image_size: number } },
  folder: string,
): void {
  if (crop.width === side && crop.height === side) return;
  throw new ConfigError(
    `images are resized to ${crop.width}x${crop.height} pixels (preprocessor_config.json), but the model reads ${side}x${side} (vision_config.image_size)`,
    { where: folder, next: 'Take preprocessor_config.json and config.json from one model.' },
  );
}

/** The resized image's size. The longer edge is rounded down. */
function resizedSize({ width, height }: Size, resize: Preprocessing['resize']): Size {
  if (resize === null) return { width, height };
  if ('width' in resize) return resize;
  const long = Math.trunc((resize.shortestEdge * Math.max(width, height)) / Math.min(width, height));
  return width <= height ? { width: resize.shortestEdge, height: long } : { width: long, height: resize.shortestEdge };
}

/** The position of a center crop along one axis: which part of the image it shows, and where that part begins in the crop. */
function center(length: number, crop: number): { from: number; length: number; at: number } {
  const from = Math.floor((length - crop) / 2);
  return { from: Math.max(from, 0), length: Math.min(length, crop), at: Math.max(-from, 0) };
}

/** Resizes and crops. Levels from 0 to 255. */
export function cropToModel(image: RgbImage, { resize, filter, crop }: Preprocessing): RgbImage {
  const resized = resizedSize(image, resize);
  const x = center(resized.width, crop.width);
  const y = center(resized.height, crop.height);
  const shown = resizeWindow(filter, image, resized, { left: x.from, top: y.from, width: x.length, height: y.length });
  if (shown.width === crop.width && shown.height === crop.height) return shown;
  const data = new Uint8Array(crop.width * crop.height * 3);
  for (let row = 0; row < shown.height; row++) {
    const from = row * shown.width * 3;
    data.set(shown.data.subarray(from, from + shown.width * 3), ((row + y.at) * crop.width + x.at) * 3);
  }
  return { ...crop, data };
}

/** The value of every level of a channel, rounded to float32 after each step as numpy does. */
function valuesOfLevels({ scale, normalize: normalise }: Preprocessing, channel: number): Float32Array {
  return Float32Array.from({ length: 256 }, (_, level) => {
    const value = Math.fround(scale === null ? level : level * scale);
    if (normalise === null) return value;
    return Math.fround(value - Math.fround(normalise.mean[channel])) / Math.fround(normalise.std[channel]);
  });
}

/** The pixel values of one image: float32, axes [3, crop height, crop width]. */
export function preprocess(image: RgbImage, steps: Preprocessing): Float32Array {
  const { data, width, height } = cropToModel(image, steps);
  const pixels = width * height;
  const values = new Float32Array(3 * pixels);
  for (let channel = 0; channel < 3; channel++) {
    const table = valuesOfLevels(steps, channel);
    for (let i = 0; i < pixels; i++) values[channel * pixels + i] = table[data[i * 3 + channel]];
  }
  return values;
}
