/** A model of random weights that sees, as a folder that vLLM and this program load, and prompts with images for it. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RgbImage } from '../../../../src/core/images/png.js';
import { RandomStream } from '../../../../src/core/random.js';
import { encodeSafetensors } from '../../../../src/core/safetensors.js';
import { withImages } from '../../../../src/models/images/vision_input.js';
import { plainProcessor } from '../../../../src/models/images/processor.js';
import type { TokenPrompt } from '../../../../src/models/tokenizer/format.js';
import { unrestricted, type TokenFormat } from '../../../../src/models/tokenizer/format.js';
import { initVisionPolicy } from '../../../../src/train/policies/tokens/load.js';
import { evenClip } from '../../../support/even_clip.js';

const WORDS = 26;
const vocabulary = [
  '<|endoftext|>',
  ...Array.from({ length: WORDS }, (_, i) => `w${i}`),
  ...['<|vision_start|>', '<|vision_end|>', '<|image_pad|>', '<|video_pad|>', 'unused'],
];
const id = (token: string): number => vocabulary.indexOf(token);

export const tokens = {
  vision_start_token_id: id('<|vision_start|>'),
  vision_end_token_id: id('<|vision_end|>'),
  image_token_id: id('<|image_pad|>'),
  video_token_id: id('<|video_pad|>'),
};

export const seeingFormat: TokenFormat = {
  size: vocabulary.length,
  ends: new Set([0]),
  secondPart: null,
  tokenizerFiles: {},
  start: () => unrestricted,
};

const limits = { min_pixels: 64, max_pixels: 4096 };
export const seeingSizes = { patch_size: 4, temporal_patch_size: 2, spatial_merge_size: 2 };
export const processor = plainProcessor(seeingSizes, limits);
export const pixels = { image: limits, video: limits };
/** What is trained with an adapter. */
export const words = { mm_vision: false, mm_mlp: false, mm_llm: true };
export const everything = { mm_vision: true, mm_mlp: true, mm_llm: true };
export const eyes = { ...tokens, ...seeingSizes, tokens_per_second: 2 };

/** Qwen2.5-VL with heads of a size that vLLM's kernels have. */
export function writeSeeingBase(folder: string): string {
  const decoder = {
    ...{ hidden_size: 128, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4 },
    ...{ num_key_value_heads: 2, rope_theta: 10_000, rms_norm_eps: 1e-6, tie_word_embeddings: false },
    ...{ initializer_range: 0.1, embedding_std: 0.8 },
  };
  const vision = {
    ...{ depth: 2, hidden_size: 64, intermediate_size: 64, num_heads: 2, ...seeingSizes },
    ...{ window_size: null, tokens_per_second: 2, fullatt_block_indexes: [], in_channels: 3 },
  };
  const model = initVisionPolicy(decoder as never, seeingFormat, 1, {
    init: vision,
    parts: everything,
    tokens,
    processor: processor.settings,
  });
  mkdirSync(folder, { recursive: true });
  const vocab = Object.fromEntries(vocabulary.map((token, at) => [token, at]));
  const special = vocabulary.filter((token) => token.startsWith('<|'));
  const plain = { special: true, single_word: false, lstrip: false, rstrip: false, normalized: false };
  const added_tokens = special.map((content) => ({ id: vocab[content], content, ...plain }));
  const files: Readonly<Record<string, unknown>> = {
    'tokenizer.json': {
      ...{ version: '1.0', truncation: null, padding: null, added_tokens, normalizer: null },
      ...{ pre_tokenizer: { type: 'Whitespace' }, post_processor: null, decoder: null },
      model: { type: 'WordLevel', vocab, unk_token: 'w0' },
    },
    'tokenizer_config.json': {
      ...{ tokenizer_class: 'PreTrainedTokenizerFast', eos_token: vocabulary[0], pad_token: vocabulary[0] },
      ...{ image_token: '<|image_pad|>', video_token: '<|video_pad|>' },
    },
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), JSON.stringify(content));
  writeFileSync(join(folder, 'config.json'), model.description ?? '');
  for (const [name, content] of Object.entries(model.files ?? {})) writeFileSync(join(folder, name), content);
  writeFileSync(join(folder, 'model.safetensors'), encodeSafetensors(model.weights, { format: 'pt' }));
  return folder;
}

function noise(width: number, height: number, name: string): RgbImage {
  const random = new RandomStream('noise', name);
  return { width, height, data: Uint8Array.from({ length: width * height * 3 }, () => random.uint32() % 256) };
}

/** Words alone, an image, a clip, and an image, a clip and another image. */
export async function seeingPrompts(): Promise<TokenPrompt[]> {
  const image = processor.image(noise(16, 24, 'image'), 'here');
  const other = processor.image(noise(40, 32, 'other'), 'here');
  const frames = ['a', 'b', 'c', 'd', 'e'].map((name) => noise(32, 40, name));
  // A step of the clip is 2/3 s: times that are no whole numbers.
  const [clip] = await processor.video(evenClip(frames, 1 / 3), 'here');
  const place = (kind: 'image' | 'video'): number[] => [
    tokens.vision_start_token_id,
    { image: tokens.image_token_id, video: tokens.video_token_id }[kind],
    tokens.vision_end_token_id,
  ];
  const made = (ids: readonly number[], images: TokenPrompt['images'] = []): TokenPrompt => ({
    ids: withImages(ids, images, tokens, seeingSizes, 'here'),
    images,
  });
  return [
    made([3, 1, 4]),
    made([1, ...place('image'), 2], [image]),
    made([5, ...place('video'), 9, 2], [clip]),
    made([1, ...place('image'), ...place('video'), 7, ...place('image'), 8], [other, clip, image]),
  ];
}
