/** The config of a CLIP model (Radford et al., 2021), with the names of Hugging Face's `CLIPConfig`. */

/** One half: a transformer that normalises before each of its layers. */
export interface ClipTowerConfig {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
}

export interface ClipConfig {
  /** Width of the space in which texts and pictures are compared. */
  readonly projection_dim: number;
  readonly text: ClipTowerConfig & {
    readonly vocab_size: number;
    /** Tokens of a text, start and end included. */
    readonly max_position_embeddings: number;
    readonly bos_token_id: number;
    /** Ends a text, and fills it up. */
    readonly eos_token_id: number;
  };
  readonly vision: ClipTowerConfig & {
    /** Side of a picture in pixels. */
    readonly image_size: number;
    /** Side of the square of pixels that becomes one token; a divisor of `image_size`. */
    readonly patch_size: number;
  };
}

/** Epsilon of the layer norms in both halves. */
export const CLIP_EPS = 1e-5;

/** The content of a folder's config.json, which Hugging Face reads as a CLIPModel's. */
export function clipConfigJson({ projection_dim, text, vision }: ClipConfig): string {
  const half = { hidden_act: 'gelu_pytorch_tanh', layer_norm_eps: CLIP_EPS, projection_dim, attention_dropout: 0 };
  const json = {
    model_type: 'clip',
    architectures: ['CLIPModel'],
    projection_dim,
    text_config: { model_type: 'clip_text_model', ...half, ...text, pad_token_id: text.eos_token_id },
    vision_config: { model_type: 'clip_vision_model', ...half, num_channels: 3, ...vision },
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}
