/** How much memory training takes, and how much disk a checkpoint, from shapes alone, before anything is built. */
import { KEPT_BYTES } from '../models/pictures/picture.js';
import type { TrainedParts } from '../nets/vision/config.js';
import type { ModelReference } from '../schema/model.js';
import type { DecoderShape, FlowModelShape, ShapeOf, VisionShape } from './recipe.js';

/** What a process takes before it holds a model: the runtime, the engine and their libraries. */
const PROCESS_BYTES = 300 * 2 ** 20;
/** Bytes of a number. */
export const FLOAT = 4;
/** Weights, gradient, that of a later micro-batch, what the engine hands back of one, and the optimizer's two moments. */
const COPIES_TRAINED = 6;
/** Frozen weights lie beside those that sampling holds packed. */
const COPIES_FROZEN = 2;
/** Of these a checkpoint has the weights and the moments. */
const COPIES_SAVED = 3;
/** Values kept per token, layer and unit of width for the backward pass: attention and normalisation. */
const ACTIVATIONS_PER_WIDTH = 14;
/**
 * What is live at once beside what is kept, in layers: the gradients of the layer that is due, and where it is computed again what that
 * makes. `npm run bench -- memory` measures it: peaks grow with the context as these say, to a tenth.
 */
const LIVE_LAYERS = { kept: 1, computedAgain: 3 };
/** Vocabulary of the tiny world, where the policy starts from random weights and its tokenizer is made with the data. */
const ASSUMED_VOCABULARY = 512;
/** Logits are computed piece by piece: of a piece so many columns, or so many elements, and so many values of each. */
const PIECE = { columns: 1024, elements: 2 ** 22, values: 4 };

/**
 * Bytes of a process that trains so many parameters, keeps `activations` values for the backward pass, and `copies` further copies of
 * the weights, beside so many parameters that are frozen, each of which lies there `copiesFrozen` times.
 */
export function trainingBytes(
  parameters: number,
  activations: number,
  copies = 0,
  frozen = 0,
  copiesFrozen = COPIES_FROZEN,
): number {
  return PROCESS_BYTES + FLOAT * ((COPIES_TRAINED + copies) * parameters + activations + copiesFrozen * frozen);
}

/** Bytes of the weights of a frozen model; 0 for none, or one of which nothing is known. */
export function frozenBytes(reference: ModelReference | null, shapeOf: ShapeOf): number {
  const shape = reference === null ? null : shapeOf(reference);
  if (shape === null || !('kind' in shape)) return 0;
  if (shape.kind === 'graphs') return shape.bytes;
  return shape.kind === 'flow' ? FLOAT * flowModelParameters(shape) : 0;
}

/** Bytes of a checkpoint of so many trained parameters, with their moving averages where these are kept. */
export function checkpointBytes(parameters: number, averaged: boolean): number {
  return FLOAT * (COPIES_SAVED + (averaged ? 1 : 0)) * parameters;
}

/**
 * Parameters of a decoder: one of width d, feed-forward width f, L layers, q and k wide queries and keys, and vocabulary V has
 * L(2dq + 2dk + 3df) + 2Vd, or Vd where the head shares the embeddings.
 */
export function decoderParameters(shape: DecoderShape): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers, num_attention_heads: heads } = shape;
  const depth = shape.head_dim ?? d / heads;
  const tables = shape.tie_word_embeddings ? 1 : 2;
  const attention = 2 * d * depth * (heads + shape.num_key_value_heads);
  return layers * (attention + 3 * d * f) + tables * (shape.vocab_size ?? ASSUMED_VOCABULARY) * d;
}

/** A micro-batch as the training graph computes it: answers of one prompt share what is computed of that. */
export interface MicroBatch {
  readonly prompts: number;
  readonly answersPerPrompt: number;
  readonly promptTokens: number;
  readonly answerTokens: number;
  /** Whether a layer keeps its input alone, and computes the rest again. */
  readonly gradientCheckpointing: boolean;
}

/**
 * Values that a decoder of h heads keeps for the backward pass of a micro-batch of P prompts of Tp tokens with G answers of Ta tokens each, in
 * P (Tp + G Ta) rows: 14d + 3f a row and layer, and for attention h P (Tp² + G Ta (Tp + Ta)) a layer; and those of one piece of its logits. With
 * checkpointing a layer keeps its input, d a row.
 */
export function decoderActivations(shape: DecoderShape, batch: MicroBatch): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers, num_attention_heads: heads } = shape;
  const { prompts, answersPerPrompt, promptTokens, answerTokens, gradientCheckpointing } = batch;
  const answerRows = prompts * answersPerPrompt * answerTokens;
  const rows = prompts * promptTokens + answerRows;
  const attention = heads * (prompts * promptTokens ** 2 + answerRows * (promptTokens + answerTokens));
  const layer = rows * (ACTIVATIONS_PER_WIDTH * d + 3 * f) + attention;
  const kept = gradientCheckpointing
    ? layers * rows * d + LIVE_LAYERS.computedAgain * layer
    : (layers + LIVE_LAYERS.kept) * layer;
  const piece = Math.max(PIECE.elements, PIECE.columns * answerRows);
  return kept + PIECE.values * Math.min(piece, (shape.vocab_size ?? ASSUMED_VOCABULARY) * answerRows);
}

/**
 * Parameters of adapters of rank r on every linear layer but the head: r (in + out) each, at most L r (8d + 3 (d + f)); fewer where keys and
 * values are narrower, or fewer layers are adapted.
 */
export function adapterParameters(shape: DecoderShape, rank: number): number {
  const { hidden_size: d, intermediate_size: f, num_hidden_layers: layers } = shape;
  return layers * rank * (8 * d + 3 * (d + f));
}

/**
 * Parameters of the parts of a model that sees, by the names of `policy.train`. An encoder of width w, feed-forward width f and L blocks has L (4w² + 3wf)
 * and its patches' kernels; its connector, which joins squares of s patches for a decoder of width d, (sw)² + swd.
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

/** Those of adapters of rank r on every linear layer of each part: r (in + out) each. */
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
 * Values that an encoder keeps for the backward pass of so many patches, of which `together` see each other: 14w + 3f a patch and block, and its
 * scores. One that is frozen keeps those of the block that is due.
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
 * Bytes of what a process keeps of pictures, where a run has so many prompts, `held` of them at once, of so many tokens that may all be pictures:
 * their frames, and what frozen parts make of them, `made` values a token. Both are bounded; what an iteration works at stays all the same.
 */
export function keptPictures(
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

/** Values kept per token, block and unit of width for the backward pass: modulation, attention and a feed-forward layer of four widths. */
const FLOW_ACTIVATIONS_PER_WIDTH = 40;

/**
 * Matrices of a flow transformer's blocks, without its IP-Adapter: a joint block has 24 w^2 for both streams and 12 w^2 of modulation, a single
 * one 12 w^2 and 3 w^2.
 */
export function flowModelParameters({ width, layers, singleLayers }: FlowModelShape): number {
  return (layers * 36 + singleLayers * 15) * width ** 2;
}

/** Those of its IP-Adapter: keys and values of each joint block, and the layer that makes tokens of a style image. */
export function imagePromptParameters({ width, layers, textWidth, imagePrompt }: FlowModelShape): number {
  if (imagePrompt === null) return 0;
  return layers * 2 * textWidth * width + imagePrompt.tokens * imagePrompt.width * textWidth;
}

/** Those of LoRA of rank r on every linear layer of the blocks, r (in + out) each: 50 w a joint block, 21 w a single one. */
export function flowAdapterParameters({ width, layers, singleLayers }: FlowModelShape, rank: number): number {
  return rank * (layers * 50 + singleLayers * 21) * width;
}

/** Values that it keeps for the backward pass of so many pictures of so many tokens, text included. */
export function flowActivations(
  { width, heads, layers, singleLayers }: FlowModelShape,
  pictures: number,
  tokens: number,
): number {
  return pictures * tokens * (layers + singleLayers) * (FLOW_ACTIVATIONS_PER_WIDTH * width + heads * tokens);
}
