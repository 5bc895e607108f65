/** The models that transformers saved (test/fixture_scripts/vision.py), their prompts with pictures, and what it computed. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ImageProcessor, type PixelLimits } from '../../../../src/models/images/processor.js';
import type { ColorScale, VisionInput } from '../../../../src/models/images/vision_input.js';
import { openDecoder } from '../../../../src/models/networks/decoder.js';
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
  /** For each prompt, answer and token: [vocabulary]. */
  readonly logits: readonly (readonly (readonly (readonly number[])[])[])[];
  /** For each prompt and answer: [tokens, width]. */
  readonly hidden: readonly string[];
  readonly loss: number;
  readonly gradients: Readonly<Record<string, string>>;
}

export const families = ['qwen2_vl', 'qwen2_5_vl'] as const;
export type Family = (typeof families)[number];

export const folderOf = (family: Family): string => join(folder, family);

export const given = JSON.parse(readFileSync(join(folder, 'prompts.json'), 'utf8')) as Given;

export const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'));
export const floatsOf = (text: string): Float32Array => new Float32Array(bytesOf(text).buffer);

export function expectedOf(family: Family): Expected {
  return JSON.parse(readFileSync(join(folder, family, 'expected.json'), 'utf8')) as Expected;
}

export const sizes = { patch_size: 4, temporal_patch_size: 2, spatial_merge_size: 2 };

export const processor = new ImageProcessor({
  sizes,
  colours: { mean: given.colours.image_mean, std: given.colours.image_std },
  image: given.limits,
  video: given.limits,
});

export async function imageOf({ kind, width, height, raw, secondsPerFrame }: GivenPicture): Promise<VisionInput> {
  const frames = raw.map((text) => ({ width, height, data: bytesOf(text) }));
  return kind === 'image' ? processor.image(frames[0], 'here') : processor.video(frames, secondsPerFrame, 'here');
}

const pictures = await Promise.all(given.prompts.map((prompt) => Promise.all(prompt.pictures.map(imageOf))));

/** Prompts as the policy reads them, new objects at every call. */
export function prompts(): TokenPrompt[] {
  return given.prompts.map(({ ids }, p) => ({ ids, images: pictures[p].map((picture) => ({ ...picture })) }));
}

export const everything: TrainedParts = { mm_vision: true, mm_mlp: true, mm_llm: true };

export function modelOf(family: Family, trains = everything): PolicyModel {
  const { config, weights } = openDecoder(folderOf(family), 'words and images');
  const format = new FreeText({ size: config.vocab_size, files: {} }, new Set([2]));
  return { config, weights, format, trains };
}
