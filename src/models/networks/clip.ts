/**
 * Opens a model that compares texts with images from its folder, in the layout of Hugging Face's transformers:
 * config.json and safetensors.
 */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import type { OpenedGraph } from '../../compute/onnx/frozen_graph.js';
import { Graph, sizeOf, type Value } from '../../compute/graph/ir.js';
import {
  checkWeights,
  CONFIG_FILE,
  readConfig,
  readWeights,
  rejectUnread,
  tensorFiles,
  type TensorFiles,
} from '../files.js';
import {
  type EmbedderConfig,
  type ImageEncoderConfig,
  readEmbedder,
  readImageEncoder,
} from '../../compute/nets/clip/config.js';
import { embedImages, embedSiglipImages, embedSiglipTexts, embedTexts } from '../../compute/nets/clip/clip.js';

/** A half for one text or one image. */
export type OpenedHalf = OpenedGraph<'embedding'>;

/** Names of the halves' inputs. Ids are int64 [1, T], and pixels are [1, 3, S, S]. */
export const TEXT_INPUT = 'input_ids';
export const IMAGE_INPUT = 'pixel_values';

interface HalfGraph {
  readonly graph: Graph;
  readonly embedding: Value;
}

function textGraph(config: EmbedderConfig, length: number): HalfGraph {
  const graph = new Graph('text_model');
  const ids = graph.input(TEXT_INPUT, [1, length], 'int64');
  return { graph, embedding: config.family === 'clip' ? embedTexts(config, ids) : embedSiglipTexts(config, ids) };
}

function imageGraph(config: ImageEncoderConfig): HalfGraph {
  const graph = new Graph('vision_model');
  const { image_size: side } = config.vision;
  const pixels = graph.input(IMAGE_INPUT, [1, 3, side, side]);
  const embedding = config.family === 'clip' ? embedImages(config, pixels) : embedSiglipImages(config, pixels);
  return { graph, embedding };
}

/** Opens the text half for the given number of tokens. Raises the errors of `checkEmbedder`. */
export function openTextHalf(folder: string, length: number): OpenedHalf {
  const config = describeEmbedder(folder);
  return withWeights(textGraph(config, length), wholeFiles(folder, config));
}

/** Opens the vision half of a whole model. Raises the errors of `checkEmbedder`. */
export function openImageHalf(folder: string): OpenedHalf {
  const config = describeEmbedder(folder);
  return withWeights(imageGraph(config), wholeFiles(folder, config));
}

/** Opens the vision half of a whole model or of a vision model. Raises the errors of `checkImageEncoder`. */
export function openImageEncoder(folder: string): OpenedHalf {
  const config = describeImageEncoder(folder);
  return withWeights(imageGraph(config), towerFiles(folder, config));
}

/**
 * Checks a model without reading its weights. Raises CheckpointError for a folder without config or weights, an
 * unsupported model or setting, the first tensor that is missing or has another shape, and unused tensors.
 */
export function checkEmbedder(folder: string): EmbedderConfig {
  const config = describeEmbedder(folder);
  const { files, stored } = wholeFiles(folder, config);
  const halves = [textGraph(config, config.text.max_position_embeddings), imageGraph(config)];
  for (const half of halves) checkWeights(files, shapesOf(half), stored);
  return config;
}

/** Like `checkEmbedder`, for a vision encoder. */
export function checkImageEncoder(folder: string): ImageEncoderConfig {
  const config = describeImageEncoder(folder);
  const { files, stored } = towerFiles(folder, config);
  checkWeights(files, shapesOf(imageGraph(config)), stored);
  return config;
}

/**
 * The config in a folder's config.json, without the weights. Raises the CheckpointErrors of `checkEmbedder`, and if texts
 * and images have embeddings of different widths.
 */
export function describeEmbedder(folder: string): EmbedderConfig {
  const where = join(folder, CONFIG_FILE);
  const config = readEmbedder(readConfig(folder), where);
  if (config.family === 'clip') return config;
  requireHead(config, where);
  const [text, image] = [config.text.projection_size, config.vision.hidden_size];
  if (text === image) return config;
  throw new CheckpointError(
    `texts have embeddings of width ${text} (text_config.projection_size), images ${image} (vision_config.hidden_size)`,
    {
      where,
      next: 'Texts and images can only be compared with the same width.',
    },
  );
}

/** Like `describeEmbedder`, for a vision encoder. */
export function describeImageEncoder(folder: string): ImageEncoderConfig {
  const where = join(folder, CONFIG_FILE);
  const config = readImageEncoder(readConfig(folder), where);
  requireHead(config, where);
  return config;
}

function requireHead(config: ImageEncoderConfig, where: string): void {
  if (config.family === 'clip' || config.vision.vision_use_head) return;
  throw new CheckpointError('vision_use_head is false, so images have no embedding', {
    where,
    next: 'Name a checkpoint with its pooling head.',
  });
}

/**
 * The most memory in bytes while a model is opened: one half after the other, with its weights both as read and as
 * packed by the engine. In float32, whatever the file has. Raises the errors of `describeEmbedder`.
 */
export function embedderBytes(folder: string): number {
  const config = describeEmbedder(folder);
  const text = parametersOf(textGraph(config, config.text.max_position_embeddings));
  return FLOAT32_BYTES * Math.max(2 * text, text + 2 * parametersOf(imageGraph(config)));
}

/** Like `embedderBytes`, for a vision encoder. */
export function imageEncoderBytes(folder: string): number {
  return FLOAT32_BYTES * 2 * parametersOf(imageGraph(describeImageEncoder(folder)));
}

const FLOAT32_BYTES = 4;

function parametersOf(half: HalfGraph): number {
  return [...shapesOf(half).values()].reduce((sum, shape) => sum + sizeOf(shape), 0);
}

/** The width of an image's embedding. */
export function imageEmbeddingWidth(config: ImageEncoderConfig): number {
  return config.family === 'clip' ? config.projection_dim : config.vision.hidden_size;
}

/**
 * Parameters without effect on embeddings: the scale of the loss's cosines, and lists of positions that older versions
 * of transformers saved.
 */
const WITHOUT_EFFECT = /^(?:logit_scale|logit_bias|(?:(?:text|vision)_model\.)?embeddings\.position_ids)$/;

/** The location of the weights, and the mapping from a parameter's name to that in the files. */
interface Stored {
  readonly files: TensorFiles;
  readonly stored: (name: string) => string;
}

function wholeFiles(folder: string, config: EmbedderConfig): Stored {
  const text = shapesOf(textGraph(config, config.text.max_position_embeddings));
  return knownFiles(folder, [...text.keys(), ...shapesOf(imageGraph(config)).keys()]);
}

/** A whole model's text half is ignored. */
function towerFiles(folder: string, config: ImageEncoderConfig): Stored {
  return knownFiles(folder, [...shapesOf(imageGraph(config)).keys()], /^text_(?:model|projection)\./);
}

/** The prefix of a vision half's names in a whole model. Transformers 5 omits it in a vision model. */
const VISION = 'vision_model.';

function knownFiles(folder: string, parameters: readonly string[], inVain?: RegExp): Stored {
  const files = tensorFiles(folder);
  const isBare = files.has('embeddings.patch_embedding.weight');
  const stored = (name: string): string => (isBare && name.startsWith(VISION) ? name.slice(VISION.length) : name);
  const known = new Set(parameters.map(stored));
  rejectUnread(folder, files, (name) => known.has(name) || WITHOUT_EFFECT.test(name) || inVain?.test(name) === true);
  return { files, stored };
}

function shapesOf({ graph }: HalfGraph): Map<string, readonly number[]> {
  return new Map([...graph.parameters].map(([name, { shape }]) => [name, shape]));
}

function withWeights(half: HalfGraph, { files, stored }: Stored): OpenedHalf {
  const { graph, embedding } = half;
  return { graph, outputs: { embedding }, weights: readWeights(files, shapesOf(half), stored) };
}
