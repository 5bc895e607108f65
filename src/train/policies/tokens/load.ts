/** Loads a token policy's model from a folder, or initializes one with random weights. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../../../core/errors.js';
import { readTextFile } from '../../../core/text.js';
import type { StorageDtype } from '../../../core/safetensors.js';
import {
  NESTED_PROCESSOR_FILE,
  PROCESSOR_FILE,
  processorFilesOf,
  VIDEO_PROCESSOR_FILE,
  type ProcessorSettings,
} from '../../../models/images/processor.js';
import { visionDecoderJson } from '../../../compute/nets/decoder/architectures.js';
import { initDecoder } from '../../../compute/nets/decoder/config.js';
import type { LoraSettings } from '../../../compute/nets/lora.js';
import { type TrainedParts, type VisionConfig, withoutTables } from '../../../compute/nets/vision/config.js';
import type { DecoderInit, VisionInit } from '../../../config/schema/model.js';
import { descriptionOf, digestOfWeights, rootOf } from '../../../models/adapters/files.js';
import { folderWith } from '../../../models/files.js';
import { visionWeights } from '../../../models/networks/decoder.js';
import { adapt, describeModel, listedTargets, openModel } from '../../../models/adapters/decoder.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { TokenFormat } from '../../../models/tokenizer/format.js';
import type { PolicyModel } from '../../../models/adapters/policy_model.js';

/** Adapters to train, and the seed of their initial weights. */
export interface FreshAdapter {
  readonly lora: LoraSettings;
  readonly seed: number;
}

/**
 * Loads a policy that writes in `format`, with new adapters if requested. `storedAs` is the form of frozen weights.
 * `parts` names the parts of a vision-language model that train.
 * Raises the CheckpointErrors of `openModel`, CheckpointError if the tokens of the format are not the model's, and
 * ConfigError for adapters that match no layer.
 */
export function loadPolicy<P extends TokenPrompt>(
  folder: string,
  format: TokenFormat<P>,
  fresh: FreshAdapter | null = null,
  parts: TrainedParts | null = null,
  storedAs: StorageDtype = 'float32',
): PolicyModel<P> {
  const part = parts === null ? 'words' : 'words and images';
  requireTokens(format, describeModel(folder, part).vocab_size, folder);
  const { config, weights } = openModel(folder, part, storedAs);
  const vision = parts === null ? {} : { trains: parts, files: processorFiles(folder) };
  const description = descriptionOf(folder);
  if (fresh === null) {
    const unread = parts === null ? visionWeights(rootOf(folder)) : undefined;
    return { config, format, weights, description, ...vision, ...(unread === undefined ? {} : { unread }) };
  }
  const adapted = adapt(config, weights, fresh.lora, { seed: fresh.seed, parts });
  const lora = listedTargets({ ...adapted, description }, fresh.lora);
  return {
    ...adapted,
    format,
    description,
    adapter: { lora, base: folder, baseDigest: digestOfWeights(folder) },
    ...vision,
  };
}

const processorNames = [PROCESSOR_FILE, VIDEO_PROCESSOR_FILE, NESTED_PROCESSOR_FILE];

/**
 * The folder with the description of a model's image processor. A PEFT adapter uses its base's, a text encoder its
 * pipeline's.
 */
export function processorFolder(folder: string): string {
  const own = folderWith(folder, processorNames);
  return processorNames.some((name) => existsSync(join(own, name))) ? own : folderWith(rootOf(folder), processorNames);
}

function processorFiles(folder: string): Record<string, string> {
  const from = processorFolder(folder);
  const names = processorNames.filter((name) => existsSync(join(from, name)));
  return Object.fromEntries(names.map((name) => [name, readTextFile(join(from, name), CheckpointError)]));
}

/**
 * Raises CheckpointError, with `where`, if the tokens of a format are not the model's. Rows without a token are usual,
 * but a format with two parts must cover all rows.
 */
export function requireTokens(
  { size, secondPart }: Pick<TokenFormat, 'size' | 'secondPart'>,
  rows: number,
  where: string,
): void {
  if (secondPart === null ? size <= rows : size === rows) return;
  throw new CheckpointError(`the model has ${rows} tokens, but its tokenizer has ${size}`, {
    where,
    next: 'Name the tokenizer that the model was trained with in policy.tokenizer.',
  });
}

/** A policy with random weights that writes in `format`. Raises GraphError when sizes do not match. */
export function initPolicy<P extends TokenPrompt>(
  { initializer_range, embedding_std, head_dim, ...rest }: DecoderInit,
  format: TokenFormat<P>,
  seed: number,
): PolicyModel<P> {
  const heads = head_dim ?? rest.hidden_size / rest.num_attention_heads;
  const config = { ...rest, head_dim: heads, vocab_size: format.size };
  const scales = { embedding_std: embedding_std ?? initializer_range ?? 0.02, initializer_range };
  return { config, format, weights: initDecoder(config, scales, seed) };
}

/** Vision settings of a model with random weights. */
export interface NewVisionSettings {
  readonly init: VisionInit;
  readonly parts: TrainedParts;
  readonly tokens: Pick<
    VisionConfig,
    'image_token_id' | 'video_token_id' | 'vision_start_token_id' | 'vision_end_token_id'
  >;
  readonly processor: ProcessorSettings;
}

/**
 * A vision-language policy with random weights, in the form of Qwen2.5-VL. Raises GraphError when sizes do not match.
 */
export function initVisionPolicy<P extends TokenPrompt>(
  init: DecoderInit,
  format: TokenFormat<P>,
  seed: number,
  { init: visionInit, parts, tokens, processor }: NewVisionSettings,
): PolicyModel<P> {
  const { initializer_range, embedding_std, ...rest } = init;
  // Qwen's models ignore head_dim.
  const head_dim = rest.hidden_size / rest.num_attention_heads;
  const {
    depth,
    hidden_size: width,
    intermediate_size: inner,
    window_size,
    fullatt_block_indexes,
    ...sizes
  } = visionInit;
  const whole = sizes.patch_size * sizes.spatial_merge_size * MAX_SIDE_TOKENS;
  const windows =
    window_size === null
      ? { window_size: whole, fullatt_block_indexes: Array.from({ length: depth }, (_, i) => i) }
      : { window_size, fullatt_block_indexes };
  const vision = {
    family: 'qwen2_5_vl',
    depth,
    width,
    inner,
    out_width: rest.hidden_size,
    windows,
    ...sizes,
    ...tokens,
    ...withoutTables,
  } as const;
  const quarter = Math.round(head_dim / 8);
  const rows = Math.floor((head_dim / 2 - quarter) / 2);
  const config = {
    ...rest,
    head_dim,
    // Qwen's decoders have a bias here, although their config.json does not set it.
    attention_bias: true,
    vocab_size: format.size,
    vision,
    mrope_section: [quarter, rows, head_dim / 2 - quarter - rows],
  };
  const scales = { embedding_std: embedding_std ?? initializer_range ?? 0.02, initializer_range };
  return {
    config,
    format,
    weights: initDecoder(config, scales, seed),
    description: `${JSON.stringify(visionDecoderJson(config), null, 2)}\n`,
    trains: parts,
    files: processorFilesOf(processor),
  };
}

/** Maximum side of an image in tokens. No image is larger. */
const MAX_SIDE_TOKENS = 1024;
