/**
 * The IP-Adapter of joint blocks: image tokens attend to tokens of a style image with separate keys and values, in
 * addition to the attention to text and image. Queries are the image's after their norm, without rotation; the result
 * is added after the block, without a gate.
 */
import { add, concat, gelu, mul, reshape, rmsNormalization, slice } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { layerNorm, linear } from '../layers.js';
import type { Adapter } from '../lora.js';
import { gated, modulatedNorm, type Modulation, modulations, type StreamConditioning } from './conditioning.js';
import type { IpAdapterConfig, JointForm } from './config.js';
import { type HeadSizes, StreamHeads } from './heads.js';
import {
  type AttentionNames,
  type FlowNames,
  IP_KEY,
  IP_NORM,
  IP_PROJECTION,
  IP_VALUE,
  jointBlock,
  MLP_RATIO,
  ownAttention,
  singleBlock,
  singleNames,
  type StreamNames,
} from './parameters.js';
import type { Compared } from './positions.js';

/** The default of torch's LayerNorm. */
const PROMPT_EPS = 1e-5;

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
    this.#tokens = layerNorm(reshape(projected, [sizes.batch * tokens, width]), IP_NORM, PROMPT_EPS);
    this.#heads = new StreamHeads(features.graph, sizes, tokens);
  }

  /** The result of a block's image queries [B, H, N, D] attending to the prompt, times the adapter's scale: heads [B, H, N, D]. */
  attend(block: string, queries: Value): Value {
    const { graph } = queries;
    const { heads, depth } = this.sizes;
    const project = (name: string, factor: number): Value => {
      const rows = linear(this.#tokens, `${block}.${name}`, heads * depth, true, this.adapter);
      // The scores' scale and the adapter's are applied here, to the smallest tensors.
      return this.#heads.split(mul(rows, graph.scalar(factor)));
    };
    return attendAll(queries, {
      keys: project(IP_KEY, 1 / Math.sqrt(depth)),
      values: project(IP_VALUE, this.config.scale),
      mask: null,
    });
  }
}

/** Epsilon of the norms of queries and keys. */
const EPS = 1e-6;

/** Inputs that all blocks share. */
export interface BlockContext {
  readonly names: FlowNames;
  readonly sizes: HeadSizes;
  readonly textTokens: number;
  /** Mask of the scores over the whole sequence, [B, 1, 1, S]; null for none. */
  readonly mask: Value | null;
  readonly image: StreamHeads;
  readonly text: StreamHeads;
  /** Text and image together. */
  readonly all: StreamHeads;
  readonly compared: Compared;
  /** Whether queries and keys are normalized. */
  readonly normsHeads: boolean;
  /** The source of the text's modulations, and of joint ones of text and image. */
  readonly conditioning: StreamConditioning;
  /** The source of the image's modulations. */
  readonly imageConditioning: StreamConditioning;
  readonly prompt: ImagePrompt | null;
  readonly adapter: Adapter | undefined;
}

/** Tokens of both streams, [B, N, W] and [B, T, W]; text is null if no later layer reads it. */
export interface Streams {
  readonly image: Value;
  readonly text: Value | null;
}

const widthOf = ({ sizes }: BlockContext): number => sizes.heads * sizes.depth;

function rowsOf(tokens: Value): Value {
  const [batch, count, width] = tokens.shape as [number, number, number];
  return reshape(tokens, [batch * count, width]);
}

function tokensOf(net: BlockContext, rows: Value): Value {
  const { batch } = net.sizes;
  return reshape(rows, [batch, rows.shape[0] / batch, rows.shape[1]]);
}

/** Rows to heads [B, H, T, D] by a layer. `norm` names the layer that normalizes each head, if the model has it. */
function project(net: BlockContext, rows: Value, layer: string, norm: string | null, heads: StreamHeads): Value {
  const { sizes, adapter } = net;
  const projected = linear(rows, layer, widthOf(net), true, adapter);
  if (norm === null || !net.normsHeads) return heads.split(projected);
  const perHead = reshape(projected, [rows.shape[0] * sizes.heads, sizes.depth]);
  const weight = rows.graph.parameter(`${norm}.weight`, [sizes.depth]);
  return heads.split(reshape(rmsNormalization(perHead, weight, EPS), projected.shape));
}

/** down(gelu(up(rows))). */
function feedForward(net: BlockContext, rows: Value, up: string, down: string): Value {
  const width = widthOf(net);
  const inner = gelu(linear(rows, up, MLP_RATIO * width, true, net.adapter));
  return linear(inner, down, width, true, net.adapter);
}

/**
 * Shifts, scales and gates of a stream: for attention and the feed-forward layers, for its keys alone, or for a second
 * attention as well.
 */
const vectorCounts = { whole: 6, keys: 2, dual: 9 } as const;

/** A stream between its attention's two halves. */
interface Entered {
  readonly normalized: Value;
  readonly key: Value;
  readonly value: Value;
  readonly modulations: readonly Modulation[];
}

function enter(
  net: BlockContext,
  block: string,
  tokens: Value,
  names: StreamNames,
  heads: StreamHeads,
  form: keyof typeof vectorCounts = 'whole',
): Entered {
  const conditioning = names === net.names.image ? net.imageConditioning : net.conditioning;
  const vectors = modulations(conditioning, `${block}.${names.modulation}`, vectorCounts[form], net.adapter);
  // A text that provides only keys and values has its scale before its shift.
  const [shift, scale] = form === 'keys' ? [vectors[1], vectors[0]] : vectors;
  const normalized = rowsOf(modulatedNorm(tokens, shift, scale));
  return {
    normalized,
    key: project(net, normalized, `${block}.${names.key}`, `${block}.${names.keyNorm}`, heads),
    value: project(net, normalized, `${block}.${names.value}`, null, heads),
    modulations: vectors,
  };
}

function queriesOf(
  net: BlockContext,
  block: string,
  { normalized }: Pick<Entered, 'normalized'>,
  names: AttentionNames,
  heads: StreamHeads,
): Value {
  return project(net, normalized, `${block}.${names.query}`, `${block}.${names.queryNorm}`, heads);
}

/** x + gate out(attended). */
function withAttended(
  net: BlockContext,
  block: string,
  tokens: Value,
  attended: Value,
  { out }: AttentionNames,
  gate: Modulation,
): Value {
  const rows = linear(attended, `${block}.${out}`, widthOf(net), true, net.adapter);
  return add(tokens, gated(tokensOf(net, rows), gate));
}

/** The image's attention to itself, from tokens normalized with shift and scale: rows. */
function attendItself(net: BlockContext, block: string, image: Value, shift: Modulation, scale: Modulation): Value {
  const normalized = rowsOf(modulatedNorm(image, shift, scale));
  const at = (part: keyof AttentionNames): string => `${block}.${ownAttention[part]}`;
  const queries = queriesOf(net, block, { normalized }, ownAttention, net.image);
  const mixed = attendAll(net.compared.queries(queries, net.textTokens), {
    keys: net.compared.keys(project(net, normalized, at('key'), at('keyNorm'), net.image), net.textTokens),
    values: project(net, normalized, at('value'), null, net.image),
    mask: null,
  });
  return net.image.join(mixed, 0);
}

/** x + gate out(attended), and the same for its `added` attention; then x + gate feed-forward(norm(x)). */
function leave(
  net: BlockContext,
  block: string,
  tokens: Value,
  attended: Value,
  names: StreamNames,
  [, , gate, mlpShift, mlpScale, mlpGate, , , ownGate]: readonly Modulation[],
  added: Value | null = null,
): Value {
  let x = withAttended(net, block, tokens, attended, names, gate);
  if (added !== null) x = withAttended(net, block, x, added, ownAttention, ownGate);
  const normalized = rowsOf(modulatedNorm(x, mlpShift, mlpScale));
  const made = feedForward(net, normalized, `${block}.${names.up}`, `${block}.${names.down}`);
  return add(x, gated(tokensOf(net, made), mlpGate));
}

/**
 * One joint block. If no later layer reads its text (`isRead`), the text has neither queries nor feed-forward layers.
 */
export function applyJointBlock(
  net: BlockContext,
  index: number,
  { text: textForm, dual }: JointForm,
  { image, text }: { readonly image: Value; readonly text: Value },
  isRead: boolean,
): Streams {
  const block = jointBlock(index);
  const { names, compared, textTokens } = net;
  const ofImage = enter(net, block, image, names.image, net.image, dual ? 'dual' : 'whole');
  const ofText = enter(net, block, text, names.text, net.text, textForm);
  const imageQueries = queriesOf(net, block, ofImage, names.image, net.image);
  const queries = isRead
    ? concat([queriesOf(net, block, ofText, names.text, net.text), imageQueries], 2)
    : imageQueries;
  const firstQuery = isRead ? 0 : textTokens;
  const mixed = attendAll(compared.queries(queries, firstQuery), {
    keys: compared.keys(concat([ofText.key, ofImage.key], 2), 0),
    values: concat([ofText.value, ofImage.value], 2),
    mask: net.mask,
  });
  const attended = net.image.join(mixed, textTokens - firstQuery);
  const [, , , , , , ownShift, ownScale] = ofImage.modulations;
  const added = dual ? attendItself(net, block, image, ownShift, ownScale) : null;
  let x = leave(net, block, image, attended, names.image, ofImage.modulations, added);
  if (net.prompt !== null) {
    x = add(x, tokensOf(net, net.image.join(net.prompt.attend(block, imageQueries), 0)));
  }
  if (!isRead) return { image: x, text: null };
  return { image: x, text: leave(net, block, text, net.text.join(mixed, 0), names.text, ofText.modulations) };
}

/**
 * One single block over [B, S, W]: x + gate out([attended, gelu(up(norm(x)))]). The last one computes only the image's
 * tokens, [B, N, W].
 */
export function applySingleBlock(net: BlockContext, index: number, x: Value, isLast: boolean): Value {
  const block = singleBlock(index);
  const { compared, textTokens, adapter } = net;
  const at = (part: keyof typeof singleNames): string => `${block}.${singleNames[part]}`;
  const [shift, scale, gate] = modulations(net.conditioning, at('modulation'), 3, adapter);
  const normalized = modulatedNorm(x, shift, scale);
  const all = rowsOf(normalized);
  const first = isLast ? textTokens : 0;
  const kept = (tokens: Value): Value => slice(tokens, 1, first, tokens.shape[1]);
  const heads = isLast ? net.image : net.all;
  const rows = rowsOf(kept(normalized));
  const mixed = attendAll(compared.queries(project(net, rows, at('query'), at('queryNorm'), heads), first), {
    keys: compared.keys(project(net, all, at('key'), at('keyNorm'), net.all), 0),
    values: project(net, all, at('value'), null, net.all),
    mask: net.mask,
  });
  const width = widthOf(net);
  const inner = gelu(linear(rows, at('up'), MLP_RATIO * width, true, adapter));
  const out = linear(concat([heads.join(mixed, 0), inner], 1), at('out'), width, true, adapter);
  return add(kept(x), gated(tokensOf(net, out), gate));
}
