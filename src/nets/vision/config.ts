/** The config of a model's vision part: the encoders of Qwen2-VL and Qwen2.5-VL with their connector, and their parameters by name. */
import type { Shape } from '../../graph/ir.js';

/** How pictures are cut, in the words of Hugging Face's configs. */
export interface PatchSizes {
  /** Side of a patch in pixels. */
  readonly patch_size: number;
  /** Frames that one patch reaches through. */
  readonly temporal_patch_size: number;
  /** Side of the square of patches that becomes one token. */
  readonly spatial_merge_size: number;
}

/** The tokens that stand for pictures, by the names of a config.json. */
export interface PictureTokens {
  readonly image_token_id: number;
  readonly video_token_id: number;
}

/** With those that stand around a picture. */
export interface MarkedPictureTokens extends PictureTokens {
  readonly vision_start_token_id: number;
  readonly vision_end_token_id: number;
}

/** By the `model_type` of config.json. */
export type VisionFamily = 'qwen2_vl' | 'qwen2_5_vl';

export interface VisionConfig extends PatchSizes, MarkedPictureTokens {
  readonly family: VisionFamily;
  readonly depth: number;
  /** The width of the encoder's rows. */
  readonly width: number;
  /** The width inside its feed-forward layers. */
  readonly inner: number;
  readonly num_heads: number;
  /** The width of a token in the decoder. */
  readonly out_width: number;
  /** Side in pixels of the squares within which patches see each other, and the blocks in which they see the whole frame; null: always that. */
  readonly windows: { readonly window_size: number; readonly fullatt_block_indexes: readonly number[] } | null;
  /** How much a second counts in the temporal positions of a clip; null: each time step counts 1. */
  readonly tokens_per_second: number | null;
}

/** The parts of a model of which each trains or stays as it is, in the words of Qwen's training scripts. */
export interface TrainedParts {
  /** The encoder. */
  readonly mm_vision: boolean;
  /** The connector, which makes the decoder's tokens of its rows. */
  readonly mm_mlp: boolean;
  /** The decoder with embeddings and head. */
  readonly mm_llm: boolean;
}

export const VISUAL = 'visual.';
export const MERGER = `${VISUAL}merger.`;

/** The part that a parameter belongs to. */
export function partOf(parameter: string): keyof TrainedParts {
  if (parameter.startsWith(MERGER)) return 'mm_mlp';
  return parameter.startsWith(VISUAL) ? 'mm_vision' : 'mm_llm';
}

type Kind = 'kernel' | 'weight' | 'residual' | 'norm' | 'bias';
type Parameters = Map<string, { readonly shape: Shape; readonly kind: Kind }>;

/** The differences between the two families. */
interface Layers {
  readonly norm: 'rms' | 'layer';
  readonly feedForward: 'swiglu' | 'quick_gelu';
}

export const layersOf: Readonly<Record<VisionFamily, Layers>> = {
  qwen2_vl: { norm: 'layer', feedForward: 'quick_gelu' },
  qwen2_5_vl: { norm: 'rms', feedForward: 'swiglu' },
};

/** Every parameter's name, shape and kind, in checkpoint order. */
export function visionParameters(config: VisionConfig): Parameters {
  const { width, inner, depth, out_width, patch_size: side, temporal_patch_size, spatial_merge_size: merge } = config;
  const { norm, feedForward } = layersOf[config.family];
  const out: Parameters = new Map();
  const linear = (name: string, outputs: number, inputs: number, kind: Kind = 'weight'): void => {
    out.set(`${name}.weight`, { shape: [outputs, inputs], kind });
    out.set(`${name}.bias`, { shape: [outputs], kind: 'bias' });
  };
  const normalisation = (name: string): void => {
    out.set(`${name}.weight`, { shape: [width], kind: 'norm' });
    if (norm === 'layer') out.set(`${name}.bias`, { shape: [width], kind: 'bias' });
  };
  out.set(`${VISUAL}patch_embed.proj.weight`, { shape: [width, 3, temporal_patch_size, side, side], kind: 'kernel' });
  for (let i = 0; i < depth; i++) {
    const block = `${VISUAL}blocks.${i}`;
    normalisation(`${block}.norm1`);
    normalisation(`${block}.norm2`);
    linear(`${block}.attn.qkv`, 3 * width, width);
    linear(`${block}.attn.proj`, width, width, 'residual');
    if (feedForward === 'swiglu') {
      linear(`${block}.mlp.gate_proj`, inner, width);
      linear(`${block}.mlp.up_proj`, inner, width);
      linear(`${block}.mlp.down_proj`, width, inner, 'residual');
    } else {
      linear(`${block}.mlp.fc1`, inner, width);
      linear(`${block}.mlp.fc2`, width, inner, 'residual');
    }
  }
  const square = merge ** 2 * width;
  normalisation(`${MERGER}ln_q`);
  linear(`${MERGER}mlp.0`, square, square);
  linear(`${MERGER}mlp.2`, out_width, square);
  return out;
}
