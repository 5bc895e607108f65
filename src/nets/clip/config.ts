/** The configs of models that compare texts with pictures, with the names of Hugging Face's `CLIPConfig` and `SiglipConfig`. */

/** Activations of the feed-forward layers, as files name them. */
export const TOWER_ACTIVATIONS = ['quick_gelu', 'gelu', 'gelu_pytorch_tanh'] as const;
export type TowerActivation = (typeof TOWER_ACTIVATIONS)[number];

/** One half: a transformer that normalises before each of its layers. */
export interface TowerConfig {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly hidden_act: TowerActivation;
  readonly layer_norm_eps: number;
}

/** The half that reads texts. */
export interface TextTowerConfig extends TowerConfig {
  readonly vocab_size: number;
  /** Tokens of a text, those that begin, end and fill it up included. */
  readonly max_position_embeddings: number;
}

/** The half that looks at pictures. */
export interface VisionTowerConfig extends TowerConfig {
  /** Side of a picture in pixels. */
  readonly image_size: number;
  /** Side of the square of pixels that becomes one token; pixels beyond the last whole square are not looked at. */
  readonly patch_size: number;
}

/** CLIP (Radford et al., 2021). */
export interface ClipConfig {
  /** Width of the space in which texts and pictures are compared. */
  readonly projection_dim: number;
  readonly text: TextTowerConfig & {
    readonly bos_token_id: number;
    /** The token whose first place stands for a text. 2 is what older files say of any vocabulary: the highest id of a text ends it then. */
    readonly eos_token_id: number;
  };
  readonly vision: VisionTowerConfig;
}

/** SigLIP (Zhai et al., 2023). */
export interface SiglipConfig {
  readonly text: TextTowerConfig & {
    /** Width of the space in which texts and pictures are compared, that of the vision half. */
    readonly projection_size: number;
  };
  readonly vision: VisionTowerConfig & {
    /** Whether attention pools the tokens of a picture; without it there is no vector of the whole. */
    readonly vision_use_head: boolean;
  };
}

/** Epsilon of the layer norms in both halves of CLIP, where a config does not say. */
export const CLIP_EPS = 1e-5;

/** Older files say this of any vocabulary (ClipConfig). */
export const UNTOLD_END = 2;

/** The content of a folder's config.json, which Hugging Face reads as a CLIPModel's. */
export function clipConfigJson({ projection_dim, text, vision }: ClipConfig): string {
  const half = { projection_dim, attention_dropout: 0 };
  const json = {
    model_type: 'clip',
    architectures: ['CLIPModel'],
    projection_dim,
    text_config: { model_type: 'clip_text_model', ...half, ...text, pad_token_id: text.eos_token_id },
    vision_config: { model_type: 'clip_vision_model', ...half, num_channels: 3, ...vision },
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}
