/** Estimates memory for training and disk space for checkpoints from model shapes alone, before anything is built. */
import type { StorageDtype } from '../../core/safetensors.js';
import type { SourceList } from '../../data/image_edits.js';
import type { ImageSize } from '../../data/image_files.js';
import { KEPT_BYTES } from '../../models/images/vision_input.js';
import { layersOf, mergersOf, type TrainedParts, type VisionConfig } from '../../compute/nets/vision/config.js';
import type { DecoderInit, ModelReference } from '../../config/schema/model.js';

/** The shape of a model, which determines its memory. */
export type ModelShape = DecoderShape | FlowModelShape | AutoencoderShape | ImageTokenizerShape | GraphsShape;

/** A frozen model that is loaded as graphs: CLIP, or the encoder of an image model's prompts. */
export interface GraphsShape {
  readonly kind: 'graphs';
  /** Bytes of its weights in float32. */
  readonly bytes: number;
  /** Bytes in float16. Absent if it cannot be stored so. */
  readonly halfBytes?: number;
  /** Bytes of the image encoder alone. Absent if equal to `bytes`. */
  readonly visionBytes?: number;
  /** Bytes of the text encoder alone. Absent if equal to `bytes`. */
  readonly wordsBytes?: number;
  /** Bytes of the text encoder in float16. Absent if it cannot be stored so. */
  readonly wordsHalfBytes?: number;
  /** Bytes of the image decoder's activations per pixel. Absent if unknown. */
  readonly bytesPerPixel?: number;
}

/** An image autoencoder. */
export interface AutoencoderShape {
  readonly kind: 'autoencoder';
  /** Side of an image divided by the side of its latents. */
  readonly reduction: number;
  /** Absent for an autoencoder that a run trains. */
  readonly decoding?: DecodingShape;
}

/** Memory for decoding images: bytes of weights, and bytes of activations per pixel. */
export interface DecodingShape {
  readonly bytes: number;
  readonly bytesPerPixel: number;
}

/** An image tokenizer. */
export interface ImageTokenizerShape {
  readonly kind: 'vision_tokenizer';
  /** Side in pixels of the square that one code represents. */
  readonly patch: number;
  readonly decoding: DecodingShape;
}

/** Counts of a flow transformer. */
export interface FlowCounts {
  /** Parameters without its IP-Adapter. */
  readonly parameters: number;
  /** Size of the largest of them. */
  readonly widest: number;
  /** The sum of inputs and outputs of all layers that LoRA adapts. */
  readonly adapted: number;
}

/** A flow transformer. */
export interface FlowModelShape {
  readonly kind: 'flow';
  readonly width: number;
  readonly heads: number;
  readonly layers: number;
  readonly singleLayers: number;
  /** Counts of a model whose config is known. Absent for one that a run creates: its counts are estimated. */
  readonly exact?: FlowCounts;
  /** Width of a text token. */
  readonly textWidth: number;
  /** Side in pixels of the square that one token represents. */
  readonly patch: number;
  /** Whether a source image is concatenated to the latents along channels. Absent: it is appended as further tokens. */
  readonly mediaBeside?: boolean;
  /** Number of its IP-Adapter's tokens, and width of the style image's features. Null without an IP-Adapter. */
  readonly imagePrompt: { readonly tokens: number; readonly width: number } | null;
  /**
   * The share of training images without text, which classifier-free guidance needs. Null if unknown, or if the
   * guidance scale is an input of the model.
   */
  readonly conditionDropout: number | null;
}

/** A decoder. */
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
  /** Absent if the vocabulary is created with the data. */
  readonly vocab_size?: number;
  /** The vision encoder of a vision-language model. */
  readonly vision?: VisionShape;
};

/** A vision encoder with its connector. */
export type VisionShape = Pick<
  VisionConfig,
  | 'family'
  | 'depth'
  | 'width'
  | 'inner'
  | 'num_heads'
  | 'patch_size'
  | 'temporal_patch_size'
  | 'spatial_merge_size'
  | 'num_position_embeddings'
  | 'deepstack_visual_indexes'
>;

/** The number of matrices in a feed-forward part: one more with a gate. */
function feedForwardMatrices({ family }: Pick<VisionConfig, 'family'>): number {
  return layersOf[family].feedForward === 'swiglu' ? 3 : 2;
}

/** Returns the shape of the model that a reference names. Null if unknown before it is opened. */
export type ShapeOf = (reference: ModelReference) => ModelShape | null;
/** Image sizes in datasets, as far as they are known before a run. */
export interface DataSizes {
  /** The largest image of the dataset at a path. Null if no image can be read. */
  largest(path: string): ImageSize | null;
  /** Sizes of the source images of a list's rows. Null for unknown sizes. */
  shown(list: SourceList): readonly (readonly (ImageSize | null)[])[];
}

/** Memory of a process before it loads a model: the runtime, the engine and their libraries. */
const PROCESS_BYTES = 300 * 2 ** 20;
/** Bytes of a float32 number. */
export const FLOAT = 4;
/** Weights, gradient, gradient of a later micro-batch, the engine's output of one, and two moments of the optimizer. */
const COPIES_TRAINED = 6;
/** Size of a packed copy relative to the weights. This and the next two constants are fitted to measured peaks. */
export const PACKED = 1.2;
/** Bytes of a half-precision number. */
export const HALF = 2;
/** How frozen weights are stored: in float32 plus a packed copy for sampling, in float32 alone, or in float16. */
export type FrozenForm = 'packed' | 'once' | 'half';
/** Their sizes relative to float32. */
const COPIES_FROZEN: Readonly<Record<FrozenForm, number>> = {
  packed: 1 + PACKED,
  once: 1,
  half: HALF / FLOAT,
};
/** The engine's allocator rounds up to powers of two. Ratio of its memory to the live memory at the peak. */
const ALLOCATED = 1.15;
/** Bytes of a decoder's compiled graphs per layer: prefill, decoding step, log-probabilities and their gradient. */
const GRAPHS_PER_LAYER = 4 * 2 ** 20;
/** A checkpoint contains the weights and both moments. */
const COPIES_SAVED = 3;
/** Values kept per token, layer and unit of width for the backward pass: attention and normalization. */
const ACTIVATIONS_PER_WIDTH = 14;
/**
 * The part of these values, and of the three per unit of inner width, that only the gradients of matrices need: inputs
 * of the products with queries, keys and values, output projection, gate and up, and down. If only a layer's input has
 * a gradient, they are not kept.
 */
const INPUTS_OF_PRODUCTS = { width: 3, inner: 1 };
/**
 * Layers that are live in addition to kept values: the gradients of the current layer and, if it is recomputed, its
 * values. Measured peaks grow with the context as predicted, within 10%.
 */
const LIVE_LAYERS = { kept: 1, computedAgain: 3 };
/** Vocabulary of the tiny world, for a policy with random weights whose tokenizer is created with the data. */
const ASSUMED_VOCABULARY = 512;
/**
 * Logits are computed in pieces of at most this many columns or elements, with this many values kept for each element.
 */
const PIECE = { columns: 1024, elements: 2 ** 22, values: 4 };

/**
 * Bytes of a process that trains this many parameters. It keeps `activations` values for the backward pass, `copies`
 * more copies of the weights, and the frozen parameters in the given form.
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
 * Bytes of a frozen model: its weights, in float16 if possible, and activations for decoding one image of `pixels`
 * pixels at a time. 0 without a model, or for an unknown one.
 */
export function frozenBytes(
  reference: ModelReference | null,
  shapeOf: ShapeOf,
  pixels = 0,
  storedAs: StorageDtype = 'float32',
): number {
  const shape = reference === null ? null : shapeOf(reference);
  switch (shape?.kind) {
    case undefined:
    case 'decoder':
      return 0;
    case 'graphs':
      return (
        ((storedAs === 'float16' ? shape.halfBytes : undefined) ?? shape.bytes) + (shape.bytesPerPixel ?? 0) * pixels
      );
    case 'flow':
      return frozenFlowBytes(shape, flowModelParameters(shape), storedAs);
    case 'autoencoder':
    case 'vision_tokenizer':
      return shape.decoding === undefined ? 0 : shape.decoding.bytes + shape.decoding.bytesPerPixel * pixels;
  }
}

/** Like `frozenBytes`, if only the image encoder is loaded. */
export function frozenVisionBytes(reference: ModelReference | null, shapeOf: ShapeOf): number {
  const shape = reference === null ? null : shapeOf(reference);
  const isGraphs = shape !== null && 'kind' in shape && shape.kind === 'graphs';
  return (isGraphs ? shape.visionBytes : undefined) ?? frozenBytes(reference, shapeOf);
}

/** Like `frozenBytes`, if only the text encoder is loaded, in float16 if possible. */
export function frozenWordsBytes(
  reference: ModelReference | null,
  shapeOf: ShapeOf,
  storedAs: StorageDtype = 'float32',
): number {
  const shape = reference === null ? null : shapeOf(reference);
  const isGraphs = shape !== null && 'kind' in shape && shape.kind === 'graphs';
  // Qwen-Image encodes prompts with a language model.
  if (shape !== null && (shape.kind === undefined || shape.kind === 'decoder')) {
    return (storedAs === 'float16' ? HALF : FLOAT) * decoderParameters(shape);
  }
  const half = isGraphs && storedAs === 'float16' ? shape.wordsHalfBytes : undefined;
  return half ?? (isGraphs ? shape.wordsBytes : undefined) ?? frozenBytes(reference, shapeOf);
}

/** Bytes of a checkpoint with this many trained parameters, and with their moving averages if `averaged`. */
export function checkpointBytes(parameters: number, averaged: boolean): number {
  return FLOAT * (COPIES_SAVED + (averaged ? 1 : 0)) * parameters;
}

/**
 * Parameters of a decoder with width d, feed-forward width f, L layers, query width q, key width k and vocabulary V: L
 * (2dq + 2dk + 3df) + 2Vd, or + Vd if the head shares the embeddings.
 */
export function decoderParameters(shape: DecoderShape): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers, num_attention_heads: heads } = shape;
  const depth = shape.head_dim ?? d / heads;
  const tables = shape.tie_word_embeddings ? 1 : 2;
  const attention = 2 * d * depth * (heads + shape.num_key_value_heads);
  return layers * (attention + 3 * d * f) + tables * (shape.vocab_size ?? ASSUMED_VOCABULARY) * d;
}

/** A micro-batch of the training graph. Answers to one prompt share the prompt's computation. */
export interface MicroBatch {
  readonly prompts: number;
  readonly answersPerPrompt: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Whether a layer keeps only its input and recomputes the rest. */
  readonly gradientCheckpointing: boolean;
}

/**
 * Values that a decoder keeps for the backward pass of a micro-batch.
 * With h heads, P prompts of Tp tokens and G answers of Ta tokens each, there are P (Tp + G Ta) rows: 14d + 3f per row
 * and layer, h P (Tp² + G Ta (Tp + Ta)) per layer for attention, and those of one piece of logits. With checkpointing,
 * a layer keeps only its input, d per row.
 * A frozen decoder without an adapter, through which gradients pass to earlier parts, keeps 11d + 2f per row and layer.
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

/** Answers of at least this many tokens enlarge their caches during decoding, when the smaller ones exist, too. */
const ENLARGED_FROM = 64;

/** Number of values in a decoder's keys and values of one token: 2 L k for key width k. */
function cachedPerToken({ hidden_size: d, num_hidden_layers, num_attention_heads, ...shape }: DecoderShape): number {
  return 2 * num_hidden_layers * shape.num_key_value_heads * (shape.head_dim ?? d / num_attention_heads);
}

/**
 * Values that a decoder needs for sampling: a row of logits per answer, and 2 L k per token for key width k.
 * Prompts count twice, as the engine's output and as its input. Growing caches of answers count half as much again.
 */
function sampledValues(shape: DecoderShape, batch: SampledBatch): number {
  const answers = batch.prompts * batch.answersPerPrompt;
  const growing = batch.answerTokens > ENLARGED_FROM ? 1.5 : 1;
  const tokens = 2 * batch.prompts * batch.promptTokens + growing * answers * batch.answerTokens;
  return cachedPerToken(shape) * tokens + (shape.vocab_size ?? ASSUMED_VOCABULARY) * answers;
}

/** The batches in a decoder process's memory. */
export interface DecoderWork {
  readonly trainBatch: MicroBatch;
  /** Null if another program samples. */
  readonly sampled: SampledBatch | null;
}

/**
 * Bytes of a process that trains a decoder or its adapter, including sampling. See `trainingBytes`. Compared with
 * measured peaks of runs.
 */
export function decoderBytes(
  shape: DecoderShape,
  { trainBatch, sampled }: DecoderWork,
  {
    trained,
    frozen,
    copies,
    frozenForm = 'packed',
    visionValues = 0,
    isTrained = true,
  }: Record<'trained' | 'frozen' | 'copies', number> & {
    readonly frozenForm?: FrozenForm;
    /** Values that a vision encoder keeps. */
    readonly visionValues?: number;
    /** Whether the decoder itself or its adapter trains. */
    readonly isTrained?: boolean;
  },
): number {
  const activations = ALLOCATED * (decoderActivations(shape, trainBatch, isTrained) + visionValues);
  const more = sampled === null ? 0 : FLOAT * sampledValues(shape, sampled);
  const graphs = GRAPHS_PER_LAYER * shape.num_hidden_layers;
  // The head is the widest matrix. It is converted to float32 as a whole while answers are sampled.
  const widened =
    frozenForm === 'half' ? ALLOCATED * FLOAT * shape.hidden_size * (shape.vocab_size ?? ASSUMED_VOCABULARY) : 0;
  return trainingBytes(trained, activations, copies, frozen, COPIES_FROZEN[frozenForm]) + more + graphs + widened;
}

/**
 * Parameters of LoRA adapters of rank r on every linear layer except the head: r (in + out) each. With query width q
 * and key width k: L r (2 (d + q) + 2 (d + k) + 3 (d + f)). Fewer if fewer layers are adapted.
 */
export function adapterParameters(shape: DecoderShape, rank: number): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers, num_attention_heads: heads } = shape;
  const depth = shape.head_dim ?? d / heads;
  const attention = 4 * d + 2 * depth * (heads + shape.num_key_value_heads);
  return layers * rank * (attention + 3 * (d + f));
}

/**
 * Parameters of a vision-language model's parts, by the names of `policy.train`.
 * An encoder of width w, L blocks and m feed-forward matrices of width f in each has L (4w² + mwf), its patch kernels
 * and learned positions. Each merger of the connector, which joins s patches for a decoder of width d, has (sw)² + swd, or swd if it has one
 * layer.
 */
export function seeingParameters(shape: DecoderShape, vision: VisionShape): Record<keyof TrainedParts, number> {
  const { depth, width, inner, patch_size, temporal_patch_size, spatial_merge_size, num_position_embeddings } = vision;
  const square = spatial_merge_size ** 2 * width;
  const own = 'only' in layersOf[vision.family].merger ? 0 : square;
  const blocks = depth * (4 * width ** 2 + feedForwardMatrices(vision) * width * inner);
  return {
    mm_vision: blocks + (3 * temporal_patch_size * patch_size ** 2 + (num_position_embeddings ?? 0)) * width,
    mm_mlp: mergersOf(vision).length * (own * square + square * shape.hidden_size),
    mm_llm: decoderParameters(shape),
  };
}

/** Parameters of LoRA adapters of rank r on every linear layer of each part: r (in + out) each. */
export function seeingAdapterParameters(
  shape: DecoderShape,
  vision: VisionShape,
  rank: number,
): Record<keyof TrainedParts, number> {
  const { depth, width, inner, spatial_merge_size } = vision;
  const square = spatial_merge_size ** 2 * width;
  const own = 'only' in layersOf[vision.family].merger ? 0 : square;
  const projections = layersOf[vision.family].projections.length;
  return {
    mm_vision: rank * depth * ((5 + projections) * width + feedForwardMatrices(vision) * (width + inner)),
    mm_mlp: rank * mergersOf(vision).length * (2 * own + square + shape.hidden_size),
    mm_llm: adapterParameters(shape, rank),
  };
}

/**
 * Values that a vision encoder keeps for the backward pass of this many patches, of which `together` attend to each
 * other: 14w + 3f per patch and block, and attention scores. A frozen encoder keeps only those of the current block.
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
 * Bytes of cached images in a process for a run with this many prompts, if all their tokens may be images: frames, and
 * outputs of frozen parts with `made` values per token.
 * Both caches are bounded, but the `together` prompts of the current iteration always stay.
 */
export function keptImages(
  { patch_size, spatial_merge_size, temporal_patch_size }: VisionShape,
  {
    prompts,
    together,
    tokens,
    made,
  }: { readonly prompts: number; readonly together: number; readonly tokens: number; readonly made: number },
): number {
  const frames = 3 * temporal_patch_size * (patch_size * spatial_merge_size) ** 2 * tokens;
  const features = FLOAT * made * tokens;
  return Math.min(prompts * frames, KEPT_BYTES + together * frames) + Math.min(prompts * features, KEPT_BYTES);
}

/**
 * Values kept per token, block and unit of width for the backward pass: modulation, attention and a feed-forward layer
 * of four widths. Fitted to differences between measured peaks.
 */
const FLOW_ACTIVATIONS_PER_WIDTH = 32;

/**
 * Parameters of a flow transformer without its IP-Adapter. An estimate covers the matrices of its blocks: 24 w² for both
 * streams of a joint block and 12 w² for modulation, 12 w² and 3 w² for a single block.
 */
export function flowModelParameters({ width, layers, singleLayers, exact }: FlowModelShape): number {
  return exact?.parameters ?? (layers * 36 + singleLayers * 15) * width ** 2;
}

/**
 * Bytes of `parameters` frozen parameters. In float16, the widest matrix is converted to float32 as a whole. An estimate
 * takes the one that produces six modulation vectors.
 */
export function frozenFlowBytes({ width, exact }: FlowModelShape, parameters: number, storedAs: StorageDtype): number {
  if (storedAs === 'float32') return FLOAT * parameters;
  return HALF * parameters + ALLOCATED * FLOAT * (exact?.widest ?? 6 * width ** 2);
}

/**
 * Parameters of its IP-Adapter: keys and values of each joint block, and the layer that turns a style image into
 * tokens.
 */
export function imagePromptParameters({ width, layers, textWidth, imagePrompt }: FlowModelShape): number {
  if (imagePrompt === null) return 0;
  return layers * 2 * textWidth * width + imagePrompt.tokens * imagePrompt.width * textWidth;
}

/**
 * Parameters of LoRA of rank r on every linear layer, r (in + out) each. An estimate covers the layers of the blocks: 50
 * w for a joint block and 21 w for a single one.
 */
export function flowAdapterParameters({ width, layers, singleLayers, exact }: FlowModelShape, rank: number): number {
  return rank * (exact?.adapted ?? (layers * 50 + singleLayers * 21) * width);
}

/** Values needed to generate `images` images of `tokens` tokens each: those of one block, and its attention scores. */
export function flowDrawn({ width, heads }: FlowModelShape, images: number, tokens: number): number {
  return images * tokens * (FLOW_ACTIVATIONS_PER_WIDTH * width + heads * tokens);
}

/** Images of a micro-batch. `tokens` counts the tokens of one image including text. */
export interface FlowMicroBatch {
  readonly images: number;
  readonly tokens: number;
  readonly gradientCheckpointing: boolean;
}

/**
 * Values that it keeps for the backward pass of a micro-batch. With checkpointing, a block keeps only its input,
 * `width` values per token.
 */
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
