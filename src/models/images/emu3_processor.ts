/**
 * Prepares images for Emu3's vision tokenizer and converts its output to images: the steps of BAAI's and of
 * transformers' image processors.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/png.js';
import { resizeCubic } from '../../core/images/resize.js';
import { readJson } from '../files.js';
import { NESTED_PROCESSOR_FILE, PROCESSOR_FILE, type PixelLimits, smartSize, unknownStep } from './processor.js';

type Three = readonly [number, number, number];

/** Converts levels from 0 to 255 to network inputs: (level * scale - `mean`) / `std`. */
export interface Levels {
  readonly scale: number;
  readonly mean: Three;
  readonly std: Three;
}

/** The rule for the size of an image. */
export interface FittedSize {
  /** Sides become multiples of it. */
  readonly factor: number;
  readonly limits: PixelLimits;
  /** The largest ratio of an image's sides. */
  readonly longest: number;
  /** The smallest side of an image. */
  readonly least: number;
}

export interface Emu3Processor {
  readonly levels: Levels;
  /** Null: images keep their size. */
  readonly size: FittedSize | null;
}

const BICUBIC = 3;
const side = z.int().positive();
const three = z.tuple([z.number(), z.number(), z.number()]);
const threePositive = z.tuple([z.number().positive(), z.number().positive(), z.number().positive()]);
const always = z.literal(true, 'only true is supported: the network needs scaled and normalized colors');

const file = z.looseObject({
  image_processor_type: z
    .string()
    .regex(/^Emu3(?:VisionVQ)?ImageProcessor(?:Fast|Pil)?$/, "only Emu3's image processors are available")
    .nullish(),
  auto_map: z.record(z.string(), z.unknown()).nullish(),
  do_resize: z.boolean().nullish(),
  resample: z.literal(BICUBIC, 'only 3 (bicubic) is available').nullish(),
  do_rescale: always.nullish(),
  rescale_factor: z.number().positive().nullish(),
  do_normalize: always.nullish(),
  image_mean: three.nullish(),
  image_std: threePositive.nullish(),
  min_pixels: side.nullish(),
  max_pixels: side.nullish(),
  spatial_factor: side.nullish(),
  size: z
    .union(
      [
        // BAAI's processor and earlier ones of transformers write their limits here once more and do not read them.
        z.strictObject({ min_pixels: side, max_pixels: side }),
        // Later versions of transformers store them only here.
        z.strictObject({ shortest_edge: side, longest_edge: side }),
      ],
      'only {min_pixels, max_pixels} and {shortest_edge, longest_edge} are supported',
    )
    .nullish(),
  // transformers pads images of several sizes to one batch. Here each is computed alone.
  do_pad: z.boolean().nullish(),
});
const keys: ReadonlySet<string> = new Set(Object.keys(file.shape));

/** The differences between the two processors. */
const makers = {
  published: { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5], longest: 5, hasLeast: true },
  transformers: {
    mean: [0.48145466, 0.4578275, 0.40821073],
    std: [0.26862954, 0.26130258, 0.27577711],
    longest: 200,
    hasLeast: false,
  },
} as const;
const usualLimits: PixelLimits = { min_pixels: 512 * 512, max_pixels: 1024 * 1024 };
const USUAL_FACTOR = 8;

/**
 * Reads `preprocessor_config.json`, or the image part of `processor_config.json`, for a tokenizer whose codes each
 * cover a square with a side of `patch` pixels. Raises CheckpointError if both files are missing, and for an
 * unsupported step.
 */
export function readEmu3Processor(folder: string, patch: number): Emu3Processor {
  const [where, json] = processorJson(folder);
  const parsed = file.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
  }
  const unknown = unknownStep(parsed.data, keys);
  if (unknown !== null) {
    throw new CheckpointError(`${unknown}: the key is unknown, so its effect on images is not supported`, {
      where,
      next: 'Remove the key if the model was trained without that step.',
    });
  }
  const found = parsed.data;
  // BAAI's folders name transformers' class or their own, and always their own code.
  const isPublished = /emu3visionvq/i.test(
    `${found.image_processor_type ?? ''} ${JSON.stringify(found.auto_map ?? {})}`,
  );
  const { mean, std, longest, hasLeast } = makers[isPublished ? 'published' : 'transformers'];
  const factor = found.spatial_factor ?? USUAL_FACTOR;
  const isFitted = found.do_resize !== false;
  const edges = found.size && 'shortest_edge' in found.size ? found.size : null;
  if (isFitted && factor % patch !== 0) {
    throw new CheckpointError(`spatial_factor is ${factor}, but a code covers squares of ${patch} pixels`, {
      where,
      next: `Use ${PROCESSOR_FILE} and config.json of the same model.`,
    });
  }
  return {
    levels: { scale: found.rescale_factor ?? 1 / 255, mean: found.image_mean ?? mean, std: found.image_std ?? std },
    size: isFitted
      ? {
          factor,
          limits: {
            min_pixels: found.min_pixels ?? edges?.shortest_edge ?? usualLimits.min_pixels,
            max_pixels: found.max_pixels ?? edges?.longest_edge ?? usualLimits.max_pixels,
          },
          longest,
          least: hasLeast ? factor : 1,
        }
      : null,
  };
}

function processorJson(folder: string): [where: string, json: unknown] {
  const own = join(folder, PROCESSOR_FILE);
  if (existsSync(own)) return [own, readJson(own)];
  const nested = join(folder, NESTED_PROCESSOR_FILE);
  const { image_processor: json = null } = existsSync(nested)
    ? z.looseObject({ image_processor: z.unknown().optional() }).catch({}).parse(readJson(nested))
    : {};
  if (json !== null) return [nested, json];
  throw new CheckpointError(`there is no ${PROCESSOR_FILE}`, {
    where: folder,
    next: `Bring it with the model, or save it in Python: AutoImageProcessor.from_pretrained(model).save_pretrained(folder).`,
  });
}

/**
 * An image in the processor's size, by Pillow's bicubic interpolation. Raises DataError, naming `where`, for an image
 * that is too long or too small.
 */
export function fitImage({ size }: Emu3Processor, image: RgbImage, where: string): RgbImage {
  if (size === null) return image;
  const { width, height } = image;
  const { factor, limits, longest, least } = size;
  if (Math.min(width, height) < least) {
    throw new DataError(`found an image of ${width}x${height} pixels; allowed: at least ${least} a side`, { where });
  }
  if (Math.max(width, height) / Math.min(width, height) > longest) {
    throw new DataError(
      `found an image of ${width}x${height} pixels; allowed: sides with a ratio of at most ${longest}`,
      {
        where,
      },
    );
  }
  const fitted = smartSize(height, width, factor, limits);
  return resizeCubic(image, fitted.width, fitted.height);
}

/** An image as planes [3, height, width] of a network's numbers, rounded to float32 after each step as in numpy. */
export function toNetwork({ scale, mean, std }: Levels, { width, height, data }: RgbImage): Float32Array {
  const count = width * height;
  const planes = new Float32Array(3 * count);
  for (let channel = 0; channel < 3; channel++) {
    const [less, by] = [Math.fround(mean[channel]), Math.fround(std[channel])];
    const table = Float32Array.from({ length: 256 }, (_, level) => Math.fround(Math.fround(level * scale) - less) / by);
    for (let i = 0; i < count; i++) planes[channel * count + i] = table[data[3 * i + channel]];
  }
  return planes;
}

/** The inverse, rounded in the same way. Levels are clamped at both ends, and fractions are dropped. */
export function fromNetwork(
  { scale, mean, std }: Levels,
  planes: Float32Array,
  { width, height }: { readonly width: number; readonly height: number },
): RgbImage {
  const count = width * height;
  const data = new Uint8Array(3 * count);
  for (let channel = 0; channel < 3; channel++) {
    const [less, by] = [Math.fround(-mean[channel] / std[channel]), Math.fround(1 / std[channel])];
    for (let i = 0; i < count; i++) {
      const share = Math.fround(Math.fround(planes[channel * count + i] - less) / by);
      const level = Math.fround(share * (1 / scale));
      data[3 * i + channel] = Math.min(255, Math.max(0, Math.trunc(level)));
    }
  }
  return { width, height, data };
}
