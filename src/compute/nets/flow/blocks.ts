/**
 * The IP-Adapter of joint blocks: image tokens attend to tokens of a style image with separate keys and values, in
 * addition to the attention to text and image. Queries are the image's after their norm, without rotation. The result
 * is added after the block, without a gate.
 */
import { add, concat, gelu, mul, reshape, rmsNormalization, slice } from '../../graph/build.js';
import type { Value } from '../../graph/ir.js';
import { attendAll } from '../decoder/attention.js';
import { layerNorm, linear, swiglu } from '../layers.js';
import type { Adapter } from '../lora.js';
import {
  gated,
  type Layers,
  modulatedNorm,
  type Modulation,
  modulations,
  type StreamConditioning,
} from './conditioning.js';
import type { FeedForwardForm, IpAdapterConfig, JointForm } from './config.js';
import { type HeadSizes, StreamHeads } from './heads.js';
import {
  type AttentionNames,
  IP_KEY,
  IP_NORM,
  IP_PROJECTION,
  IP_VALUE,
  jointBlock,
  ownAttention,
  singleBlock,
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

/** The modulations of a kind of blocks, each with its vectors in the order of one block. */
export interface SharedModulations {
  readonly image: readonly Modulation[];
  readonly text: readonly Modulation[];
  /** Empty for a model without single blocks. */
  readonly single: readonly Modulation[];
}

/** Inputs that all blocks share. */
export interface BlockContext extends Layers {
  readonly sizes: HeadSizes;
  readonly feedForward: FeedForwardForm;
  readonly textTokens: number;
  /** Mask of the scores over the whole sequence, [B, 1, 1, S]. Null for none. */
  readonly mask: Value | null;
  readonly image: StreamHeads;
  readonly text: StreamHeads;
  /** Text and image together. */
  readonly all: StreamHeads;
  readonly compared: Compared;
  /** Whether queries and keys are normalized. */
  readonly normsHeads: boolean;
  /** The source of the modulations of the text stream and of single blocks. */
  readonly conditioning: StreamConditioning;
  /** The source of the image's modulations. */
  readonly imageConditioning: StreamConditioning;
  /** Null if each block makes its own modulations. */
  readonly shared: SharedModulations | null;
  readonly prompt: ImagePrompt | null;
}

/** Tokens of both streams, [B, N, W] and [B, T, W]. Text is null if no later layer reads it. */
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
  return headsOf(net, linear(rows, layer, widthOf(net), net.biases, net.adapter), norm, heads);
}

/** Projected rows to heads, as `project`. */
function headsOf(net: BlockContext, projected: Value, norm: string | null, heads: StreamHeads): Value {
  const { sizes } = net;
  if (norm === null || !net.normsHeads) return heads.split(projected);
  const perHead = reshape(projected, [projected.shape[0] * sizes.heads, sizes.depth]);
  const weight = projected.graph.parameter(`${norm}.weight`, [sizes.depth]);
  return heads.split(reshape(rmsNormalization(perHead, weight, EPS), projected.shape));
}

/** By the activation: from rows [N, up] to [N, inner]. */
const activations: Readonly<Record<FeedForwardForm['activation'], (rows: Value) => Value>> = {
  gelu,
  swiglu: (rows) => {
    const [, width] = rows.shape;
    return swiglu(slice(rows, 1, 0, width / 2), slice(rows, 1, width / 2, width));
  },
};

/** down(activation(up(rows))). */
function feedForward(net: BlockContext, rows: Value, up: string, down: string): Value {
  const { feedForward: form, biases, adapter } = net;
  const inner = activations[form.activation](linear(rows, up, form.up, biases, adapter));
  return linear(inner, down, widthOf(net), biases, adapter);
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
  const stream = names === net.names.image ? 'image' : 'text';
  const conditioning = stream === 'image' ? net.imageConditioning : net.conditioning;
  const vectors =
    net.shared?.[stream] ?? modulations(conditioning, `${block}.${names.modulation}`, vectorCounts[form], net);
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
  const rows = linear(attended, `${block}.${out}`, widthOf(net), net.biases, net.adapter);
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

/** x + gate out(attended), and the same for its `added` attention. Then x + gate feed-forward(norm(x)). */
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

/** A single block between its normalized tokens and its attention. */
interface SingleEntered {
  readonly queries: Value;
  readonly keys: Value;
  readonly values: Value;
  /** [rows, inner] of the feed-forward layer, after its activation. */
  readonly inner: Value;
}

/** Queries and the feed-forward layer are only computed for the tokens from `first` on, if they have layers of their own. */
function enterSingle(net: BlockContext, block: string, normalized: Value, first: number): SingleEntered {
  const { names, feedForward: form, biases, adapter } = net;
  const { into, queryNorm, keyNorm } = names.single;
  const width = widthOf(net);
  const kept = first === 0 ? net.all : net.image;
  const activation = activations[form.activation];
  const at = (part: string): string => `${block}.${part}`;
  const all = rowsOf(normalized);
  if (typeof into !== 'string') {
    const rows = rowsOf(slice(normalized, 1, first, normalized.shape[1]));
    return {
      queries: project(net, rows, at(into.query), at(queryNorm), kept),
      keys: project(net, all, at(into.key), at(keyNorm), net.all),
      values: project(net, all, at(into.value), null, net.all),
      inner: activation(linear(rows, at(into.up), form.up, biases, adapter)),
    };
  }
  const projected = linear(all, at(into), 3 * width + form.up, biases, adapter);
  const part = (from: number, to: number): Value => slice(projected, 1, from, to);
  const keptPart = (from: number, to: number): Value => {
    const tokens = tokensOf(net, part(from, to));
    return rowsOf(slice(tokens, 1, first, tokens.shape[1]));
  };
  return {
    queries: headsOf(net, keptPart(0, width), at(queryNorm), kept),
    keys: headsOf(net, part(width, 2 * width), at(keyNorm), net.all),
    values: headsOf(net, part(2 * width, 3 * width), null, net.all),
    inner: activation(keptPart(3 * width, 3 * width + form.up)),
  };
}

/**
 * One single block over [B, S, W]: x + gate out([attended, activation(up(norm(x)))]). The last one computes only the
 * image's tokens, [B, N, W].
 */
export function applySingleBlock(net: BlockContext, index: number, x: Value, isLast: boolean): Value {
  const block = singleBlock(index);
  const { compared, textTokens, names, biases, adapter } = net;
  const [shift, scale, gate] =
    net.shared?.single ?? modulations(net.conditioning, `${block}.${names.single.modulation}`, 3, net);
  const first = isLast ? textTokens : 0;
  const { queries, keys, values, inner } = enterSingle(net, block, modulatedNorm(x, shift, scale), first);
  const mixed = attendAll(compared.queries(queries, first), {
    keys: compared.keys(keys, 0),
    values,
    mask: net.mask,
  });
  const attended = (isLast ? net.image : net.all).join(mixed, 0);
  const out = linear(concat([attended, inner], 1), `${block}.${names.single.out}`, widthOf(net), biases, adapter);
  return add(slice(x, 1, first, x.shape[1]), gated(tokensOf(net, out), gate));
}
