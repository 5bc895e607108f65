/** SigLIP (Zhai et al., 2023) by the names of Hugging Face's SiglipModel: like CLIP, with other ways to make one vector of a text or a picture. */
import { add, expand, mul, reshape, slice } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { StreamHeads } from '../flow/heads.js';
import { layerNorm, linear } from '../layers.js';
import { sumOf } from '../product.js';
import type { SiglipConfig } from './config.js';
import { feedForward, patchCount, patchTokens, positions, tower, wordTokens } from './tower.js';

/** Embeds texts: ids [B, T], int64, filled up to the length that the model was trained with, to [B, E], by the last token. Not normalised. */
export function embedSiglipTexts({ text }: SiglipConfig, ids: Value): Value {
  const [batch, length] = ids.shape as [number, number];
  const { hidden_size: width, layer_norm_eps: eps } = text;
  // Every token attends to every other, also to those that fill up.
  const out = tower(text, 'text_model', wordTokens(text, 'text_model', ids), null);
  const last = reshape(slice(reshape(out, [batch, length, width]), 1, length - 1, length), [batch, width]);
  return linear(layerNorm(last, 'text_model.final_layer_norm', eps), 'text_model.head', text.projection_size, true);
}

/** Pictures [B, 3, S, S], preprocessed, to [B, W], by the head that pools the tokens. Not normalised. */
export function embedSiglipPictures({ vision }: Pick<SiglipConfig, 'vision'>, pixels: Value): Value {
  const { graph } = pixels;
  const [batch] = pixels.shape as [number];
  const [tokens, width] = [patchCount(vision), vision.hidden_size];
  const patches = patchTokens(vision, 'vision_model', pixels, true);
  const out = tower(vision, 'vision_model', add(patches, positions(graph, 'vision_model', tokens, width)), null);
  const rows = layerNorm(out, 'vision_model.post_layernorm', vision.layer_norm_eps);
  return pooled(vision, rows, batch, tokens);
}

/** What a learnt query finds among rows [B * N, W] of each picture: [B, W]. */
function pooled(vision: SiglipConfig['vision'], rows: Value, batch: number, tokens: number): Value {
  const { graph } = rows;
  const { hidden_size: width, num_attention_heads: heads, layer_norm_eps: eps } = vision;
  const name = 'vision_model.head';
  const depth = width / heads;
  const weight = graph.parameter(`${name}.attention.in_proj_weight`, [3 * width, width]);
  const bias = graph.parameter(`${name}.attention.in_proj_bias`, [3 * width]);
  /** Queries, keys or values: their rows of the joint projection. */
  const project = (x: Value, part: number): Value => {
    const [from, to] = [part * width, (part + 1) * width];
    return sumOf([{ rows: x, table: slice(weight, 0, from, to), scale: 1 }], slice(bias, 0, from, to));
  };
  const streams = new StreamHeads(graph, { batch, heads, depth }, tokens);
  const [keys, values] = [1, 2].map((part) => streams.split(project(rows, part)));
  const probe = reshape(graph.parameter(`${name}.probe`, [1, 1, width]), [1, width]);
  const query = reshape(mul(project(probe, 0), graph.scalar(1 / Math.sqrt(depth))), [1, heads, 1, depth]);
  const queries = expand(query, [batch, heads, 1, depth]);
  const mixed = reshape(attendAll(queries, { keys, values, mask: null }), [batch, width]);
  const found = linear(mixed, `${name}.attention.out_proj`, width, true);
  return add(found, feedForward(vision, `${name}.mlp`, layerNorm(found, `${name}.layernorm`, eps)));
}
