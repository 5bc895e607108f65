/**
 * Transformers that predict the velocity of rectified flows: joint blocks with weights of their own for text and image (Esser et al., "Scaling
 * Rectified Flow Transformers", 2024), then single blocks that share them. One description serves training and sampling.
 *
 * Axis letters: B samples, N image tokens, T text tokens, S = T + N + M with text first, M tokens of reference images (0 for none), W width, H heads, D depth of a head.
 */
import { GraphError, must } from '../../../core/errors.js';
import { add, concat, gemm, maximum, mul, reciprocal, reshape, slice, sub, transpose } from '../../graph/build.js';
import type { Graph, Shape, Value } from '../../graph/ir.js';
import { type BlockWrapper, linear, rmsNorm, silu } from '../layers.js';
import type { Adapter } from '../lora.js';
import {
  applyJointBlock,
  applySingleBlock,
  type BlockContext,
  ImagePrompt,
  type SharedModulations,
  type Streams,
} from './blocks.js';
import {
  conditioning,
  type Conditions,
  type Layers,
  modulatedNorm,
  modulations,
  type StreamConditioning,
} from './conditioning.js';
import {
  checkFlowConfig,
  embedsGuidance,
  feedForwardForm,
  type FlowTransformerConfig,
  hasBiases,
  innerWidth,
  jointForm,
  normsHeads,
  pooledWidth,
  type Sd3Config,
  singleLayers,
  takesSecond,
  takesSeveral,
  velocityWidth,
} from './config.js';
import { StreamHeads } from './heads.js';
import { flowNames, LAST, LAST_MODULATION } from './parameters.js';
import { addPositions, type FlowGrid, FlowRotary, imagesOf, referenceTokens, unrotated } from './positions.js';

export { isIpAdapter } from './parameters.js';
export { flowAdapter, flowLinearLayers, flowParameters, initFlowTransformer } from './parameters.js';

/**
 * The sizes of a batch: images of rows x columns tokens, each with the given number of text tokens. A second image of
 * the same size and those after it are references, which are not generated.
 */
export interface FlowShape extends FlowGrid {
  readonly batch: number;
  /** Whether some of the text's tokens are padding, which no token attends to. Absent means none. */
  readonly hasPadding?: boolean;
}

export interface FlowInputs {
  /** [B, N, in_channels]: packed noisy latents with the joined latents, row by row of the image. */
  readonly hidden: Value;
  /** [B, M, in_channels]: the latents of the second image and of all images after it. Null if the shape has none. */
  readonly second: Value | null;
  /** [B, T, joint_attention_dim] */
  readonly text: Value;
  /** [B, T]: 0 on tokens, a large negative number on padding. Null if the shape has none. */
  readonly textPadding: Value | null;
  /** [B, pooled_projection_dim]. Null if the config has none. */
  readonly pooled: Value | null;
  /** [B]: the noise level in [0, 1]. */
  readonly sigma: Value;
  /** [B]. Null if the config has none. */
  readonly guidance: Value | null;
  /** [B, image_embed_dim]: features of the style image. Null: the graph has no IP-Adapter. */
  readonly imageFeatures: Value | null;
}

/**
 * The inputs that a config needs, as inputs of the graph: hidden, second, text, text_padding, pooled, sigma, guidance,
 * image_features.
 */
export function flowInputs(graph: Graph, config: FlowTransformerConfig, shape: FlowShape): FlowInputs {
  const shapes = shapesOf(config, shape);
  const optional = (name: string, wanted: Shape | null): Value | null =>
    wanted === null ? null : graph.input(name, wanted);
  return {
    hidden: graph.input('hidden', shapes.hidden),
    second: optional('second', shapes.second),
    text: graph.input('text', shapes.text),
    textPadding: optional('text_padding', shapes.textPadding),
    pooled: optional('pooled', shapes.pooled),
    sigma: graph.input('sigma', shapes.sigma),
    guidance: optional('guidance', shapes.guidance),
    imageFeatures: optional('image_features', shapes.imageFeatures),
  };
}

/** The shape of each input. Null for inputs that the config does not have. */
function shapesOf(
  config: FlowTransformerConfig,
  shape: FlowShape,
): { readonly [K in keyof FlowInputs]: null extends FlowInputs[K] ? Shape | null : Shape } {
  const { batch, rows, columns, textTokens, hasPadding = false } = shape;
  const shown = referenceTokens(shape);
  return {
    hidden: [batch, rows * columns, config.in_channels],
    second: shown > 0 ? [batch, shown, config.in_channels] : null,
    text: [batch, textTokens, config.joint_attention_dim],
    textPadding: hasPadding ? [batch, textTokens] : null,
    pooled: pooledWidth(config) > 0 ? [batch, pooledWidth(config)] : null,
    sigma: [batch],
    guidance: embedsGuidance(config) ? [batch] : null,
    imageFeatures: config.ip_adapter === null ? null : [batch, config.ip_adapter.image_embed_dim],
  };
}

/** Raises GraphError if the inputs do not match the config. Inputs of an IP-Adapter may be left out. */
function checkInputs(config: FlowTransformerConfig, shape: FlowShape, inputs: FlowInputs): void {
  const references = imagesOf(shape).length - 1;
  if (references > 1 && !takesSeveral(config)) {
    throw new GraphError(`${references} reference images, but the model takes only one`);
  }
  if (references > 0 && !takesSecond(config)) {
    throw new GraphError('a second image, for which the model has no positions');
  }
  const shapes = shapesOf(config, shape);
  for (const name of Object.keys(shapes) as (keyof FlowInputs)[]) {
    const [found, wanted] = [inputs[name], shapes[name]];
    if (name === 'imageFeatures' && found === null) continue;
    if (found?.shape.join() === wanted?.join()) continue;
    const text = (one: Shape | null | undefined): string =>
      one === null || one === undefined ? 'none' : `[${one.join(', ')}]`;
    throw new GraphError(`${name} has shape ${text(found?.shape)}, the config needs ${text(wanted)}`);
  }
}

/**
 * The velocity [B, N, velocityWidth] that `config` predicts. `adapter` is a LoRA adapter over its linear layers. `wrap`
 * builds each block, of all of its tokens [B, S, W]. Raises GraphError for a config or inputs whose sizes do not fit
 * together.
 */
export function velocity(
  graph: Graph,
  config: FlowTransformerConfig,
  shape: FlowShape,
  inputs: FlowInputs,
  adapter?: Adapter,
  wrap?: BlockWrapper,
): Value {
  checkFlowConfig(config);
  checkInputs(config, shape, inputs);
  const net = netOf(graph, config, shape, inputs, adapter);
  const singles = singleLayers(config);
  let streams: Streams = embedded(net, config, shape, inputs);
  for (let i = 0; i < config.num_layers; i++) {
    const text = must(streams.text, 'the text of a joint block');
    const isRead = i < config.num_layers - 1 || singles > 0;
    const form = jointForm(config, i);
    const apply = (of: { readonly image: Value; readonly text: Value }): Streams =>
      graph.scope(`joint.${i}`, () => applyJointBlock(net, i, form, of, isRead));
    const of = { image: streams.image, text };
    streams = wrap === undefined ? apply(of) : wrapped(wrap, `joint.${i}`, of, apply);
  }
  let x = streams.image;
  if (singles > 0) {
    x = concat([must(streams.text, 'the text of a single block'), x], 1);
    for (let i = 0; i < singles; i++) {
      const apply = (of: Value): Value =>
        graph.scope(`single.${i}`, () => applySingleBlock(net, i, of, i === singles - 1));
      x = wrap === undefined ? apply(x) : wrap(`single.${i}`, x, apply);
    }
  }
  const { batch, rows, columns } = shape;
  // The results of reference tokens are not used.
  x = slice(x, 1, 0, rows * columns);
  const [scale, shift] = modulations(net.conditioning, LAST_MODULATION, 2, net);
  const last = reshape(modulatedNorm(x, shift, scale), [batch * rows * columns, innerWidth(config)]);
  const out = velocityWidth(config);
  const rowsOut = linear(last, LAST, out, net.biases, adapter);
  const ordered = config.architecture === 'sd3' ? channelsFirst(rowsOut, config) : rowsOut;
  const predicted = reshape(ordered, [batch, rows * columns, out]);
  return config.prediction === 'velocity' ? predicted : towards(predicted, inputs);
}

/**
 * A joint block built by `wrap`, which takes and returns one value: the tokens of both streams, text first, or only the
 * image's if the text is no longer read.
 */
function wrapped(
  wrap: BlockWrapper,
  name: string,
  { image, text }: { readonly image: Value; readonly text: Value },
  apply: (of: { readonly image: Value; readonly text: Value }) => Streams,
): Streams {
  const textLength = text.shape[1];
  const cut = (x: Value): { readonly image: Value; readonly text: Value } => ({
    image: slice(x, 1, textLength, x.shape[1]),
    text: slice(x, 1, 0, textLength),
  });
  const made = wrap(name, concat([text, image], 1), (x) => {
    const found = apply(cut(x));
    return found.text === null ? found.image : concat([found.text, found.image], 1);
  });
  return made.shape[1] === image.shape[1] ? { image: made, text: null } : cut(made);
}

/**
 * The last layer of Stable Diffusion 3 has the channels of a patch innermost. Input tokens, and the outputs of other
 * models, have them outermost.
 */
function channelsFirst(rows: Value, { patch_size: patch, out_channels: channels }: Sd3Config): Value {
  const count = rows.shape[0];
  return transpose(reshape(rows, [count, patch ** 2, channels]), [0, 2, 1]);
}

/** The smallest divisor of the difference between a sample and the clean one. Lower noise levels are raised to it. */
const MIN_LEVEL = 0.05;

/** The velocity (x - x0) / sigma from noisy samples, the first input channels, to clean ones [B, N, C]. */
function towards(clean: Value, { hidden, sigma }: FlowInputs): Value {
  const [batch, , channels] = clean.shape;
  const level = maximum(sigma, sigma.graph.scalar(MIN_LEVEL));
  return mul(sub(slice(hidden, 2, 0, channels), clean), reshape(reciprocal(level), [batch, 1, 1]));
}

function netOf(
  graph: Graph,
  config: FlowTransformerConfig,
  shape: FlowShape,
  inputs: FlowInputs,
  adapter: Adapter | undefined,
): BlockContext {
  const sizes = { batch: shape.batch, heads: config.num_attention_heads, depth: config.attention_head_dim };
  const imageTokens = shape.rows * shape.columns + referenceTokens(shape);
  const { ip_adapter, joint_attention_dim } = config;
  const { imageFeatures, textPadding } = inputs;
  const layers = { names: flowNames[config.architecture], biases: hasBiases(config), adapter };
  const conditionings = conditioningOf(config, shape, inputs, layers);
  return {
    ...layers,
    sizes,
    feedForward: feedForwardForm(config),
    textTokens: shape.textTokens,
    mask: textPadding === null ? null : maskOf(textPadding, imageTokens),
    image: new StreamHeads(graph, sizes, imageTokens),
    text: new StreamHeads(graph, sizes, shape.textTokens),
    all: new StreamHeads(graph, sizes, shape.textTokens + imageTokens),
    compared:
      config.architecture === 'sd3' ? unrotated(config.attention_head_dim) : new FlowRotary(graph, config, shape),
    normsHeads: normsHeads(config),
    ...conditionings,
    shared: layers.names.sharesModulations ? sharedModulations(config, conditionings, layers) : null,
    prompt:
      ip_adapter === null || imageFeatures === null
        ? null
        : new ImagePrompt(imageFeatures, ip_adapter, joint_attention_dim, sizes, adapter),
  };
}

/** The modulations of all blocks. They are made before the blocks, because a block may be recomputed. */
function sharedModulations(
  config: FlowTransformerConfig,
  { conditioning, imageConditioning }: Pick<BlockContext, 'conditioning' | 'imageConditioning'>,
  layers: Layers,
): SharedModulations {
  const { image, text, single } = layers.names;
  return {
    image: modulations(imageConditioning, image.modulation, 6, layers),
    text: modulations(conditioning, text.modulation, 6, layers),
    single: singleLayers(config) > 0 ? modulations(conditioning, single.modulation, 3, layers) : [],
  };
}

/** The conditioning of both streams. Reference images may be modulated as noise-free. */
function conditioningOf(
  config: FlowTransformerConfig,
  shape: FlowShape,
  inputs: FlowInputs,
  layers: Layers,
): Pick<BlockContext, 'conditioning' | 'imageConditioning'> {
  const made = (conditions: Conditions): Value => silu(conditioning(conditions, innerWidth(config), layers));
  const { batch, rows: high, columns } = shape;
  if (config.architecture !== 'qwen_image' || !config.zero_cond_t || referenceTokens(shape) === 0) {
    const all: StreamConditioning = { rows: made(inputs), clean: null };
    return { conditioning: all, imageConditioning: all };
  }
  const { sigma } = inputs;
  const levels = concat([sigma, sigma.graph.constant(Float32Array.of(0), [1])], 0);
  const rows = made({ ...inputs, sigma: levels });
  return {
    conditioning: { rows: slice(rows, 0, 0, batch), clean: null },
    imageConditioning: { rows, clean: high * columns },
  };
}

/** The mask that keeps every token from attending to padding: [B, 1, 1, S]. */
function maskOf(textPadding: Value, imageTokens: number): Value {
  const [batch, textTokens] = textPadding.shape as [number, number];
  const seen = textPadding.graph.constant(new Float32Array(batch * imageTokens), [batch, imageTokens]);
  return reshape(concat([textPadding, seen], 1), [batch, 1, 1, textTokens + imageTokens]);
}

/** Both streams before the first block. */
function embedded(
  { names, biases, adapter }: BlockContext,
  config: FlowTransformerConfig,
  shape: FlowShape,
  { hidden, second, text }: FlowInputs,
): Streams {
  const width = innerWidth(config);
  const embed = (x: Value, layer: string, norm: string | null): Value => {
    const [batch, count, channels] = x.shape as [number, number, number];
    const rows = reshape(x, [batch * count, channels]);
    const normalized = norm === null ? rows : rmsNorm(rows, norm, 1e-6);
    return reshape(linear(normalized, layer, width, biases, adapter), [batch, count, width]);
  };
  const embeddedText = embed(text, names.textIn, names.textNorm);
  if (config.architecture === 'sd3') {
    return { image: addPositions(config, patches(config, hidden), shape), text: embeddedText };
  }
  const images = second === null ? hidden : concat([hidden, second], 1);
  return { image: embed(images, names.imageIn, null), text: embeddedText };
}

/** Tokens [B, N, C patch^2] through the kernels of a convolution over whole patches, which are a layer over tokens: [B, N, W]. */
function patches(config: Sd3Config, hidden: Value): Value {
  const [batch, count, inputs] = hidden.shape as [number, number, number];
  const [width, patch] = [innerWidth(config), config.patch_size];
  const { imageIn } = flowNames.sd3;
  const kernels = hidden.graph.parameter(`${imageIn}.weight`, [width, inputs / patch ** 2, patch, patch]);
  const rows = gemm(reshape(hidden, [batch * count, inputs]), reshape(kernels, [width, inputs]), { transB: true });
  return reshape(add(rows, hidden.graph.parameter(`${imageIn}.bias`, [width])), [batch, count, width]);
}
