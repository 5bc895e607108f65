/** Diffusers' names for the parts of its flow transformers. */
import type { FlowArchitecture } from './config.js';

/** One attention of a stream. */
export interface AttentionNames {
  readonly query: string;
  readonly key: string;
  readonly value: string;
  readonly queryNorm: string;
  readonly keyNorm: string;
  /** After attention. */
  readonly out: string;
}

/** One stream of a joint block. */
export interface StreamNames extends AttentionNames {
  /** Makes shifts, scales and gates of the conditioning. */
  readonly modulation: string;
  /** The feed-forward layers. */
  readonly up: string;
  readonly down: string;
}

const ofImage = {
  query: 'attn.to_q',
  key: 'attn.to_k',
  value: 'attn.to_v',
  queryNorm: 'attn.norm_q',
  keyNorm: 'attn.norm_k',
  out: 'attn.to_out.0',
} as const;

const ofText = {
  query: 'attn.add_q_proj',
  key: 'attn.add_k_proj',
  value: 'attn.add_v_proj',
  queryNorm: 'attn.norm_added_q',
  keyNorm: 'attn.norm_added_k',
  out: 'attn.to_add_out',
} as const;

/** The image's attention to itself alone, of blocks that have it. */
export const ownAttention: AttentionNames = {
  query: 'attn2.to_q',
  key: 'attn2.to_k',
  value: 'attn2.to_v',
  queryNorm: 'attn2.norm_q',
  keyNorm: 'attn2.norm_k',
  out: 'attn2.to_out.0',
};

export interface FlowNames {
  readonly imageIn: string;
  readonly textIn: string;
  /** The norm before it, if there is one. */
  readonly textNorm: string | null;
  readonly image: StreamNames;
  readonly text: StreamNames;
}

const streams = {
  image: { ...ofImage, modulation: 'norm1.linear', up: 'ff.net.0.proj', down: 'ff.net.2' },
  text: { ...ofText, modulation: 'norm1_context.linear', up: 'ff_context.net.0.proj', down: 'ff_context.net.2' },
} as const;

export const flowNames: Readonly<Record<FlowArchitecture, FlowNames>> = {
  flux: { imageIn: 'x_embedder', textIn: 'context_embedder', textNorm: null, ...streams },
  sd3: { imageIn: 'pos_embed.proj', textIn: 'context_embedder', textNorm: null, ...streams },
  qwen_image: {
    imageIn: 'img_in',
    textIn: 'txt_in',
    textNorm: 'txt_norm',
    image: { ...ofImage, modulation: 'img_mod.1', up: 'img_mlp.net.0.proj', down: 'img_mlp.net.2' },
    text: { ...ofText, modulation: 'txt_mod.1', up: 'txt_mlp.net.0.proj', down: 'txt_mlp.net.2' },
  },
};

/** Positions of Stable Diffusion 3, [1, size^2, width]: they are stored with the weights, and never trained. */
export const POSITION_TABLE = 'pos_embed.pos_embed';

export const TIME = 'time_text_embed.timestep_embedder';
export const GUIDANCE = 'time_text_embed.guidance_embedder';
export const POOLED = 'time_text_embed.text_embedder';
export const LAST_MODULATION = 'norm_out.linear';
export const LAST = 'proj_out';

export const jointBlock = (index: number): string => `transformer_blocks.${index}`;
export const singleBlock = (index: number): string => `single_transformer_blocks.${index}`;

/** One stream of a single block, of which `out` also takes what the feed-forward layer `up` makes. */
export const singleNames = {
  modulation: 'norm.linear',
  query: 'attn.to_q',
  key: 'attn.to_k',
  value: 'attn.to_v',
  queryNorm: 'attn.norm_q',
  keyNorm: 'attn.norm_k',
  up: 'proj_mlp',
  out: 'proj_out',
} as const;

/** The adapter's layers as diffusers has them once an adapter is loaded, for the first of the adapters that it could hold. */
export const IP_PROJECTION = 'encoder_hid_proj.image_projection_layers.0.image_embeds';
export const IP_NORM = 'encoder_hid_proj.image_projection_layers.0.norm';
export const IP_KEY = 'attn.processor.to_k_ip.0';
export const IP_VALUE = 'attn.processor.to_v_ip.0';

/** Whether a parameter is the IP-Adapter's. */
export function isIpAdapter(name: string): boolean {
  return name.startsWith('encoder_hid_proj.') || /\.attn\.processor\.to_[kv]_ip\./.test(name);
}
