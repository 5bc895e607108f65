/** The models that transformers saved (test/fixture_scripts/vision.py), their prompts with pictures, and what it computed. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ImageProcessor, type PixelLimits } from '../../../../src/models/images/processor.js';
import type { ColorScale, VisionInput } from '../../../../src/models/images/vision_input.js';
import { openDecoder } from '../../../../src/models/networks/decoder.js';
import { evenClip } from '../../../support/even_clip.js';
import type { TrainedParts } from '../../../../src/compute/nets/vision/config.js';
import type { TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { FreeText } from '../../../../src/models/tokenizer/format.js';
import type { PolicyModel } from '../../../../src/models/adapters/policy_model.js';

const folder = fileURLToPath(new URL('./fixtures', import.meta.url));

interface GivenPicture {
  readonly kind: VisionInput['kind'];
  readonly width: number;
  readonly height: number;
  readonly secondsPerFrame: number;
  readonly raw: readonly string[];
  readonly grid: readonly [number, number, number];
  readonly pixels: string;
}

interface Given {
  readonly limits: PixelLimits;
  readonly colours: { readonly image_mean: ColorScale['mean']; readonly image_std: ColorScale['std'] };
  readonly prompts: readonly {
    readonly ids: readonly number[];
    readonly pictures: readonly GivenPicture[];
    readonly answers: readonly (readonly number[])[];
  }[];
}

export interface Expected {
  /** The version of transformers. */
  readonly transformers: string;
  /** For each prompt, answer and token: [vocabulary]. */
  readonly logits: readonly (readonly (readonly (readonly number[])[])[])[];
  /** For each prompt and answer: [tokens, width]. */
  readonly hidden: readonly string[];
  readonly loss: number;
  readonly gradients: Readonly<Record<string, string>>;
  /** Of Qwen3-VL: for each prompt with its first answer, the rows after each block but the last. */
  readonly states?: readonly (readonly string[])[];
  /** Of Qwen3-VL with an adapter that PEFT made. */
  readonly adapted?: Pick<Expected, 'logits' | 'gradients'>;
}

export const families = ['qwen2_vl', 'qwen2_5_vl', 'qwen3_vl'] as const;
export type Family = (typeof families)[number];

export const folderOf = (family: Family): string => join(folder, family);

const read = (name: string): Given => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Given;

export const given = read('prompts.json');
const timed = read('qwen3_vl/prompts.json');

/** The prompts of a family: those with clips, or its own. */
export function givenOf(family: Family): Given {
  return family === 'qwen3_vl' ? timed : given;
}

export const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));
export const floatsOf = (text: string): Float32Array => new Float32Array(bytesOf(text).buffer);

export function expectedOf(family: Family): Expected {
  return JSON.parse(readFileSync(join(folder, family, 'expected.json'), 'utf8')) as Expected;
}

export const sizes = { patch_size: 4, temporal_patch_size: 2, spatial_merge_size: 2 };

const settings = {
  sizes,
  colours: { mean: given.colours.image_mean, std: given.colours.image_std },
  image: given.limits,
  video: given.limits,
};
export const processor = new ImageProcessor(settings);
const timing = new ImageProcessor(settings, 'timed steps');

const processorOf = (family: Family): ImageProcessor => (family === 'qwen3_vl' ? timing : processor);

export async function inputsOf(
  { kind, width, height, raw, secondsPerFrame }: GivenPicture,
  family: Family = 'qwen2_5_vl',
): Promise<VisionInput[]> {
  const frames = raw.map((text) => ({ width, height, data: bytesOf(text) }));
  const made = processorOf(family);
  return kind === 'image' ? [made.image(frames[0], 'here')] : made.video(evenClip(frames, secondsPerFrame), 'here');
}

const picturesOf = ({ prompts: all }: Given, family: Family): Promise<VisionInput[][]> =>
  Promise.all(
    all.map(async (prompt) => (await Promise.all(prompt.pictures.map((one) => inputsOf(one, family)))).flat()),
  );
const shared = await picturesOf(given, 'qwen2_5_vl');
const pictures: Readonly<Record<Family, VisionInput[][]>> = {
  qwen2_vl: shared,
  qwen2_5_vl: shared,
  qwen3_vl: await picturesOf(givenOf('qwen3_vl'), 'qwen3_vl'),
};

/** Prompts as the policy reads them, new objects at every call. */
export function prompts(family: Family = 'qwen2_5_vl'): TokenPrompt[] {
  return givenOf(family).prompts.map(({ ids }, p) => ({
    ids,
    images: pictures[family][p].map((picture) => ({ ...picture })),
  }));
}

export const everything: TrainedParts = { mm_vision: true, mm_mlp: true, mm_llm: true };

export function modelOf(family: Family, trains = everything): PolicyModel {
  const { config, weights } = openDecoder(folderOf(family), 'words and images');
  const format = new FreeText({ size: config.vocab_size, files: {} }, new Set([2]));
  return { config, weights, format, trains };
}
