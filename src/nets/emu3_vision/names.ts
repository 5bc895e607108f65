/** How the parameters of Emu3's vision tokenizer are called and kept, as BAAI published them and as transformers converts them. */
import type { Shape } from '../../graph/ir.js';
import type { Emu3VisionConfig } from './config.js';

export type Half = 'encoder' | 'decoder';

export interface Naming {
  /** Before the number of a level. */
  readonly levels: Readonly<Record<Half, string>>;
  /** What stands between the levels and the latents. */
  readonly middle: string;
  /** The layers of an attention, after its name. */
  readonly projections: Readonly<Record<'q' | 'k' | 'v' | 'out', string>>;
  /** The norm before an attention. */
  readonly normOf: (attention: string) => string;
  /** The shape of an attention's layers. */
  readonly matrix: (channels: number) => Shape;
}

export const namings: Readonly<Record<Emu3VisionConfig['layout'], Naming>> = {
  published: {
    levels: { encoder: 'encoder.down', decoder: 'decoder.up' },
    middle: 'mid',
    projections: { q: 'q', k: 'k', v: 'v', out: 'proj_out' },
    normOf: (attention) => `${attention}.norm`,
    // As the kernels of a convolution without neighbours.
    matrix: (channels) => [channels, channels, 1, 1],
  },
  transformers: {
    levels: { encoder: 'encoder.down_block.down', decoder: 'decoder.up_block.up' },
    middle: 'middle_block',
    projections: { q: 'q_proj', k: 'k_proj', v: 'v_proj', out: 'out_proj' },
    // attn.<i> and attn_norms.<i> at a level, attn_1 and attn_norm in the middle.
    normOf: (attention) => attention.replace(/\.attn\.(\d+)$/, '.attn_norms.$1').replace(/\.attn_1$/, '.attn_norm'),
    matrix: (channels) => [channels, channels],
  },
};
