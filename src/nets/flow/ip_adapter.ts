/**
 * The IP-Adapter of joint blocks: image tokens attend to tokens of a style image with separate keys and values, beside the attention to text and
 * image. Queries are the image's after their norm, without rotation; the result is added after the block, without a gate.
 */
import { mul, reshape } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { layerNorm, linear } from '../layers.js';
import type { Adapter } from '../lora.js';
import type { IpAdapterConfig } from './config.js';
import { StreamHeads, type HeadSizes } from './heads.js';
import { IP_KEY, IP_NORM, IP_PROJECTION, IP_VALUE } from './names.js';

/** The default of torch's LayerNorm. */
const EPS = 1e-5;

/** A style image as tokens that blocks attend to. */
export class ImagePrompt {
  readonly #tokens: Value;
  readonly #heads: StreamHeads;

  /** `features` [B, image_embed_dim] become `tokens` tokens of `width`. */
  constructor(
    features: Value,
    private readonly config: IpAdapterConfig,
    width: number,
    private readonly sizes: HeadSizes,
    private readonly adapter: Adapter | undefined,
  ) {
    const { tokens } = config;
    const projected = linear(features, IP_PROJECTION, tokens * width, true, adapter);
    this.#tokens = layerNorm(reshape(projected, [sizes.batch * tokens, width]), IP_NORM, EPS);
    this.#heads = new StreamHeads(features.graph, sizes, tokens);
  }

  /** The result of a block's image queries [B, H, N, D] attending to the prompt, times the adapter's scale: heads [B, H, N, D]. */
  attend(block: string, queries: Value): Value {
    const { graph } = queries;
    const { heads, depth } = this.sizes;
    const project = (name: string, factor: number): Value => {
      const rows = linear(this.#tokens, `${block}.${name}`, heads * depth, true, this.adapter);
      // The scores' scale and the adapter's are applied here, where there are the fewest numbers.
      return this.#heads.split(mul(rows, graph.scalar(factor)));
    };
    return attendAll(queries, {
      keys: project(IP_KEY, 1 / Math.sqrt(depth)),
      values: project(IP_VALUE, this.config.scale),
      mask: null,
    });
  }
}
