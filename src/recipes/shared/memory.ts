/** Estimates the memory that training takes, and the disk space of a checkpoint, from shapes alone, before anything is built. */
import type { HeldDtype } from '../../core/safetensors.js';
import type { SourceList } from '../../data/image_edits.js';
import type { ImageSize } from '../../data/image_files.js';
import { KEPT_BYTES } from '../../models/images/vision_input.js';
import type { TrainedParts, VisionConfig } from '../../compute/nets/vision/config.js';
import type { DecoderInit, ModelReference } from '../../config/schema/model.js';

/** The shape of a model, which decides its memory. */
export type ModelShape = DecoderShape | FlowModelShape | AutoencoderShape | ImageTokenizerShape | GraphsShape;

/** For a frozen model that is loaded as graphs: CLIP, or the encoder of an image model's prompts. */
export interface GraphsShape {
  readonly kind: 'graphs';
  /** Bytes of its weights. */
  readonly bytes: number;
  /** The same stored in float16. Absent: they cannot be. */
  readonly halfBytes?: number;
  /** Those where only the image encoder is read of it. Absent: as many. */
  readonly visionBytes?: number;
  /** Those where only the text encoder is read of it. Absent: as many. */
  readonly wordsBytes?: number;
  /** The same stored in float16. Absent: it cannot be. */
  readonly wordsHalfBytes?: number;
  /** Bytes of the layers of the image decoder, for each pixel. Absent: unknown. */
  readonly bytesPerPixel?: number;
}

/** For an autoencoder of images. */
export interface AutoencoderShape {
  readonly kind: 'autoencoder';
  /** Side of an image divided by that of its latents. */
  readonly reduction: number;
  /** Absent for one that a run makes. */
  readonly decoding?: DecodingShape;
}

/** Memory for decoding images: bytes of weights, and of layers per pixel. */
export interface DecodingShape {
  readonly bytes: number;
  readonly bytesPerPixel: number;
}

/** For a tokenizer of images. */
export interface ImageTokenizerShape {
  readonly kind: 'vision_tokenizer';
  /** Side of the square of pixels that one code stands for. */
  readonly patch: number;
  readonly decoding: DecodingShape;
}

/** For a flow transformer. */
export interface FlowModelShape {
  readonly kind: 'flow';
  readonly width: number;
  readonly heads: number;
  readonly layers: number;
  readonly singleLayers: number;
  /** Of the layers, those in which the image attends to itself once more. Absent: none. */
  readonly dualLayers?: number;
  /** Numbers of a stored table of positions. Absent: none. */
  readonly places?: number;
  /** Width of a text token. */
  readonly textWidth: number;
  /** Side of the square of pixels that one token represents. */
  readonly patch: number;
  /** Whether an image that it edits lies beside the latents of its own. Absent: it is shown as further tokens. */
  readonly mediaBeside?: boolean;
  /** Its IP-Adapter: tokens, and the width of the features of a style image. Null for none. */
  readonly imagePrompt: { readonly tokens: number; readonly width: number } | null;
  /**
   * The share of images that it is shown without words, which guidance is measured from. Null if unknown, or if it takes the guidance scale as an
   * input.
   */
  readonly conditionDropout: number | null;
}

/** For a decoder. */
export type DecoderShape = Pick<
  DecoderInit,
  | 'hidden_size'
  | 'intermediate_size'
  | 'num_hidden_layers'
  | 'num_attention_heads'
  | 'num_key_value_heads'
  | 'head_dim'
  | 'tie_word_embeddings'
> & {
  readonly kind?: 'decoder';
  /** Absent if the vocabulary is made with the data. */
  readonly vocab_size?: number;
  /** For a vision-language model. */
  readonly vision?: VisionShape;
};

/** For a vision encoder with its connector. */
export type VisionShape = Pick<
  VisionConfig,
  'depth' | 'width' | 'inner' | 'num_heads' | 'patch_size' | 'temporal_patch_size' | 'spatial_merge_size'
>;
/** The shape of the model that a reference names. Null if unknown before it is opened. */
export type ShapeOf = (reference: ModelReference) => ModelShape | null;
/** Image sizes of datasets, as far as they are known before a run. */
export interface DataSizes {
  /** The largest image of the dataset at a path. Null if none can be read. */
  largest(path: string): ImageSize | null;
  /** The images before the edit of rows of a list. A size that is not known is null. */
  shown(list: SourceList): readonly (readonly (ImageSize | null)[])[];
}

/** Memory of a process before it loads a model: the runtime, the engine and their libraries. */
const PROCESS_BYTES = 300 * 2 ** 20;
/** Bytes of a number. */
export const FLOAT = 4;
/** Weights, gradient, a later micro-batch's gradient, the engine's output of one, and the optimizer's two moments. */
const COPIES_TRAINED = 6;
/** Size of a packed copy, relative to the weights. This and the next two constants were fitted to measured peaks. */
export const PACKED = 1.2;
/** Bytes of a number stored in half precision. */
export const HALF = 2;
/**
 * How frozen weights are stored: in float32 and once more packed for sampling, in float32 alone, or in float16.
 */
export type FrozenForm = 'packed' | 'once' | 'half';
/** Their sizes relative to float32. */
const COPIES_FROZEN: Readonly<Record<FrozenForm, number>> = {
  packed: 1 + PACKED,
  once: 1,
  half: HALF / FLOAT,
};
/** The engine's allocator takes memory in powers of two: it holds so many times what is live at the peak. */
const ALLOCATED = 1.15;
/** A decoder's compiled graphs, for each layer: prefill, a decoding step, log-probabilities and their gradient. */
const GRAPHS_PER_LAYER = 4 * 2 ** 20;
/** A checkpoint saves the weights and the moments. */
const COPIES_SAVED = 3;
/** Values kept per token, layer and unit of width for the backward pass: attention and normalization. */
const ACTIVATIONS_PER_WIDTH = 14;
/**
 * Those among them, and among the three per unit of inner width, that a layer keeps for the gradients of its matrices alone: the inputs of its products, to queries,
 * keys and values, to the output projection, and to gate and up; and of that down. Where only its input has a gradient, they are not kept.
 */
const INPUTS_OF_PRODUCTS = { width: 3, inner: 1 };
/**
 * Layers that are live at once besides what is kept: the gradients of the current layer and, if it is recomputed, its values. Measured
 * peaks grow with the context as predicted, to within a tenth.
 */
const LIVE_LAYERS = { kept: 1, computedAgain: 3 };
/** Vocabulary of the tiny world, for a policy with random weights whose tokenizer is made with the data. */
const ASSUMED_VOCABULARY = 512;
/** Logits are computed in pieces: at most this many columns, or elements, per piece, with this many values kept for each. */
const PIECE = { columns: 1024, elements: 2 ** 22, values: 4 };

/**
 * Bytes of a process that trains this many parameters, keeps `activations` values for the backward pass and `copies` further copies of the weights,
 * and holds this many frozen parameters `copiesFrozen` times.
 */
export function trainingBytes(
  parameters: number,
  activations: number,
  copies = 0,
  frozen = 0,
  copiesFrozen = COPIES_FROZEN.packed,
): number {
  return PROCESS_BYTES + FLOAT * ((COPIES_TRAINED + copies) * parameters + activations + copiesFrozen * frozen);
}

/**
 * Bytes of a frozen model's weights, stored in float16 where they can be, and of the layers of one that decodes images of so many pixels, one at a time.
 * 0 for none, or for an unknown one.
 */
export function frozenBytes(
  reference: ModelReference | null,
  shapeOf: ShapeOf,
  pixels = 0,
  held: HeldDtype = 'float32',
): number {
  const shape = reference === null ? null : shapeOf(reference);
  switch (shape?.kind) {
    case undefined:
    case 'decoder':
      return 0;
    case 'graphs':
      return ((held === 'float16' ? shape.halfBytes : undefined) ?? shape.bytes) + (shape.bytesPerPixel ?? 0) * pixels;
    case 'flow':
      return frozenFlowBytes(shape, flowModelParameters(shape) + (shape.places ?? 0), held);
    case 'autoencoder':
    case 'vision_tokenizer':
      return shape.decoding === undefined ? 0 : shape.decoding.bytes + shape.decoding.bytesPerPixel * pixels;
  }
}

/** The same where only the image encoder is read of it. */
export function frozenVisionBytes(reference: ModelReference | null, shapeOf: ShapeOf): number {
  const shape = reference === null ? null : shapeOf(reference);
  const isGraphs = shape !== null && 'kind' in shape && shape.kind === 'graphs';
  return (isGraphs ? shape.visionBytes : undefined) ?? frozenBytes(reference, shapeOf);
}

/** The same where only the text encoder is read of it, stored in float16 where it can be. */
export function frozenWordsBytes(
  reference: ModelReference | null,
  shapeOf: ShapeOf,
  held: HeldDtype = 'float32',
): number {
  const shape = reference === null ? null : shapeOf(reference);
  const isGraphs = shape !== null && 'kind' in shape && shape.kind === 'graphs';
  // Qwen-Image reads prompts with a language model.
  if (shape !== null && (shape.kind === undefined || shape.kind === 'decoder')) {
    return (held === 'float16' ? HALF : FLOAT) * decoderParameters(shape);
  }
  const half = isGraphs && held === 'float16' ? shape.wordsHalfBytes : undefined;
  return half ?? (isGraphs ? shape.wordsBytes : undefined) ?? frozenBytes(reference, shapeOf);
}

/** Bytes of a checkpoint of this many trained parameters, with their moving averages if these are kept. */
export function checkpointBytes(parameters: number, averaged: boolean): number {
  return FLOAT * (COPIES_SAVED + (averaged ? 1 : 0)) * parameters;
}

/**
 * Parameters of a decoder with width d, feed-forward width f, L layers, queries of width q, keys of width k, and vocabulary V: L(2dq + 2dk + 3df) +
 * 2Vd, or + Vd if the head shares the embeddings.
 */
export function decoderParameters(shape: DecoderShape): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers, num_attention_heads: heads } = shape;
  const depth = shape.head_dim ?? d / heads;
  const tables = shape.tie_word_embeddings ? 1 : 2;
  const attention = 2 * d * depth * (heads + shape.num_key_value_heads);
  return layers * (attention + 3 * d * f) + tables * (shape.vocab_size ?? ASSUMED_VOCABULARY) * d;
}

/** A micro-batch in the training graph: answers to one prompt share its computation. */
export interface MicroBatch {
  readonly prompts: number;
  readonly answersPerPrompt: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Whether a layer keeps only its input, and recomputes the rest. */
  readonly gradientCheckpointing: boolean;
}

/**
 * Values that a decoder with h heads keeps for the backward pass of a micro-batch of P prompts of Tp tokens with G answers of Ta tokens each, in P
 * (Tp + G Ta) rows: 14d + 3f per row and layer, for attention h P (Tp² + G Ta (Tp + Ta)) per layer, and those of one piece of its logits. With
 * checkpointing a layer only keeps its input, d per row. One that neither trains nor has an adapter, through which gradients pass to what is before
 * it, keeps 11d + 2f per row and layer.
 */
export function decoderActivations(shape: DecoderShape, batch: MicroBatch, isTrained = true): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers, num_attention_heads: heads } = shape;
  const { prompts, answersPerPrompt, promptTokens, answerTokens, gradientCheckpointing } = batch;
  const answerRows = prompts * answersPerPrompt * answerTokens;
  const rows = prompts * promptTokens + answerRows;
  const attention = heads * (prompts * promptTokens ** 2 + answerRows * (promptTokens + answerTokens));
  const inputs = isTrained ? 0 : INPUTS_OF_PRODUCTS.width * d + INPUTS_OF_PRODUCTS.inner * f;
  const layer = rows * (ACTIVATIONS_PER_WIDTH * d + 3 * f - inputs) + attention;
  const kept = gradientCheckpointing
    ? layers * rows * d + LIVE_LAYERS.computedAgain * layer
    : (layers + LIVE_LAYERS.kept) * layer;
  const piece = Math.max(PIECE.elements, PIECE.columns * answerRows);
  return kept + PIECE.values * Math.min(piece, (shape.vocab_size ?? ASSUMED_VOCABULARY) * answerRows);
}

/** Answers that are sampled together, and their prompts. */
export type SampledBatch = Omit<MicroBatch, 'gradientCheckpointing'>;

/** Whether the caches of answers of this many tokens are enlarged on their way, so that the smaller ones lie there too. */
const ENLARGED_FROM = 64;

/** Values of a decoder's keys and values of one token: 2 L k, with keys of width k. */
function cachedPerToken({ hidden_size: d, num_hidden_layers, num_attention_heads, ...shape }: DecoderShape): number {
  return 2 * num_hidden_layers * shape.num_key_value_heads * (shape.head_dim ?? d / num_attention_heads);
}

/**
 * Values that a decoder holds while it samples: 2 L k for each token, with keys of width k, of prompts twice (as the engine gives them, and as they are
 * read) and of answers, whose caches lie there half as large once more while they grow; and a row of logits for each answer.
 */
function sampledValues(shape: DecoderShape, batch: SampledBatch): number {
  const answers = batch.prompts * batch.answersPerPrompt;
  const growing = batch.answerTokens > ENLARGED_FROM ? 1.5 : 1;
  const tokens = 2 * batch.prompts * batch.promptTokens + growing * answers * batch.answerTokens;
  return cachedPerToken(shape) * tokens + (shape.vocab_size ?? ASSUMED_VOCABULARY) * answers;
}

/** The batches that a decoder's process has in memory. */
export interface DecoderWork {
  readonly learnt: MicroBatch;
  /** Null where another program samples. */
  readonly sampled: SampledBatch | null;
}

/**
 * Bytes of a process that trains a decoder, or an adapter of it: see `trainingBytes`, with what it holds to sample. It was compared with
 * the peaks of runs.
 */
export function decoderBytes(
  shape: DecoderShape,
  { learnt, sampled }: DecoderWork,
  {
    trained,
    frozen,
    copies,
    held = 'packed',
    seen = 0,
    isTrained = true,
  }: Record<'trained' | 'frozen' | 'copies', number> & {
    readonly held?: FrozenForm;
    /** Values that an encoder before it keeps. */
    readonly seen?: number;
    /** Whether the decoder itself or an adapter of it trains. */
    readonly isTrained?: boolean;
  },
): number {
  const activations = ALLOCATED * (decoderActivations(shape, learnt, isTrained) + seen);
  const more = sampled === null ? 0 : FLOAT * sampledValues(shape, sampled);
  const graphs = GRAPHS_PER_LAYER * shape.num_hidden_layers;
  // The widest matrix is widened whole: the head, while answers are sampled.
  const widened =
    held === 'half' ? ALLOCATED * FLOAT * shape.hidden_size * (shape.vocab_size ?? ASSUMED_VOCABULARY) : 0;
  return trainingBytes(trained, activations, copies, frozen, COPIES_FROZEN[held]) + more + graphs + widened;
}

/**
 * Parameters of adapters of rank r on every linear layer except the head: r (in + out) each, at most L r (8d + 3 (d + f)). Fewer if keys and values
 * are narrower, or fewer layers are adapted.
 */
export function adapterParameters(shape: DecoderShape, rank: number): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers } = shape;
  return layers * rank * (8 * d + 3 * (d + f));
}

/**
 * Parameters of the parts of a vision-language model, by the names of `policy.train`. An encoder of width w, feed-forward width f and L blocks has L (4w² +
 * 3wf) and its patch kernels. Its connector, which joins squares of s patches for a decoder of width d, has (sw)² + swd.
 */
export function seeingParameters(shape: DecoderShape, vision: VisionShape): Record<keyof TrainedParts, number> {
  const { depth, width, inner, patch_size, temporal_patch_size, spatial_merge_size } = vision;
  const square = spatial_merge_size ** 2 * width;
  return {
    mm_vision: depth * (4 * width ** 2 + 3 * width * inner) + 3 * temporal_patch_size * patch_size ** 2 * width,
    mm_mlp: square ** 2 + square * shape.hidden_size,
    mm_llm: decoderParameters(shape),
  };
}

/** Parameters of adapters of rank r on every linear layer of each part: r (in + out) each. */
export function seeingAdapterParameters(
  shape: DecoderShape,
  vision: VisionShape,
  rank: number,
): Record<keyof TrainedParts, number> {
  const { depth, width, inner, spatial_merge_size } = vision;
  const square = spatial_merge_size ** 2 * width;
  return {
    mm_vision: rank * depth * (6 * width + 3 * (width + inner)),
    mm_mlp: rank * (3 * square + shape.hidden_size),
    mm_llm: adapterParameters(shape, rank),
  };
}

/**
 * Values that an encoder keeps for the backward pass of this many patches, `together` of which see each other: 14w + 3f per patch and block, and its
 * scores. A frozen encoder only keeps those of the current block.
 */
export function visionActivations(
  { depth, width, inner, num_heads }: VisionShape,
  patches: number,
  together: number,
  isTrained: boolean,
): number {
  const block = patches * (ACTIVATIONS_PER_WIDTH * width + 3 * inner + num_heads * Math.min(together, patches));
  return (isTrained ? depth + LIVE_LAYERS.kept : LIVE_LAYERS.kept) * block;
}

/**
 * Bytes of cached images in a process, for a run with this many prompts, `held` of them at once, whose tokens may all be images: their frames,
 * and the outputs of frozen parts, `made` values per token. Both caches are bounded, but what an iteration is using stays regardless.
 */
export function keptImages(
  { patch_size, spatial_merge_size, temporal_patch_size }: VisionShape,
  {
    prompts,
    held,
    tokens,
    made,
  }: { readonly prompts: number; readonly held: number; readonly tokens: number; readonly made: number },
): number {
  const frames = 3 * temporal_patch_size * (patch_size * spatial_merge_size) ** 2 * tokens;
  const features = FLOAT * made * tokens;
  return Math.min(prompts * frames, KEPT_BYTES + held * frames) + Math.min(prompts * features, KEPT_BYTES);
}

/**
 * Values kept per token, block and unit of width for the backward pass: modulation, attention and a feed-forward layer four widths wide. Fitted to the
 * differences between measured peaks.
 */
const FLOW_ACTIVATIONS_PER_WIDTH = 32;

/**
 * Matrices of a flow transformer's blocks, without its IP-Adapter: a joint block has 24 w^2 for both streams and 12 w^2 for modulation, a single
 * block 12 w^2 and 3 w^2. A second attention of the image has 4 w^2 and 3 w^2.
 */
export function flowModelParameters({ width, layers, singleLayers, dualLayers = 0 }: FlowModelShape): number {
  return (layers * 36 + singleLayers * 15 + dualLayers * 7) * width ** 2;
}

/**
 * Bytes of so many of its parameters that stay frozen. Held in float16, the widest matrix is widened whole: what makes six vectors of modulation, or
 * nine where the image has a second attention.
 */
export function frozenFlowBytes(
  { width, dualLayers = 0 }: FlowModelShape,
  parameters: number,
  held: HeldDtype,
): number {
  if (held === 'float32') return FLOAT * parameters;
  return HALF * parameters + ALLOCATED * FLOAT * (dualLayers === 0 ? 6 : 9) * width ** 2;
}

/** Parameters of its IP-Adapter: keys and values of each joint block, and the layer that turns a style image into tokens. */
export function imagePromptParameters({ width, layers, textWidth, imagePrompt }: FlowModelShape): number {
  if (imagePrompt === null) return 0;
  return layers * 2 * textWidth * width + imagePrompt.tokens * imagePrompt.width * textWidth;
}

/** Parameters of LoRA of rank r on every linear layer of the blocks, r (in + out) each: 50 w for a joint block, 21 w for a single one, 11 w for a second attention. */
export function flowAdapterParameters(
  { width, layers, singleLayers, dualLayers = 0 }: FlowModelShape,
  rank: number,
): number {
  return rank * (layers * 50 + singleLayers * 21 + dualLayers * 11) * width;
}

/** Values that it holds while it draws this many images with this many tokens each: those of one block, and its scores. */
export function flowDrawn({ width, heads }: FlowModelShape, images: number, tokens: number): number {
  return images * tokens * (FLOW_ACTIVATIONS_PER_WIDTH * width + heads * tokens);
}

/** Images of a micro-batch, with this many tokens each, including text. */
export interface FlowMicroBatch {
  readonly images: number;
  readonly tokens: number;
  readonly gradientCheckpointing: boolean;
}

/** Values that it keeps for the backward pass of a micro-batch. With checkpointing a block only keeps its input, width per token. */
export function flowActivations(
  shape: FlowModelShape,
  { images, tokens, gradientCheckpointing }: FlowMicroBatch,
): number {
  const { width, layers, singleLayers } = shape;
  const blocks = layers + singleLayers;
  const block = flowDrawn(shape, images, tokens);
  if (!gradientCheckpointing) return blocks * block;
  return blocks * images * tokens * width + LIVE_LAYERS.computedAgain * block;
}
