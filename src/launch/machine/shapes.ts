/** The shapes of models, for estimates of memory and disk space: those on this machine, and those that runs make. */
import { readConfig } from '../../models/files.js';
import { isPipeline, partFolder, readPipeline, type Pipeline } from '../../models/pipeline.js';
import {
  autoencoderClasses,
  describeAutoencoder,
  frozenParameters,
  type FrozenAutoencoder,
} from '../../models/networks/autoencoder.js';
import {
  emu3VisionTypes,
  patchOf,
  readEmu3Vision,
  WHOLE,
  type Emu3VisionConfig,
} from '../../compute/nets/emu3_vision/config.js';
import { emu3VisionParameters } from '../../compute/nets/emu3_vision/tokenizer.js';
import {
  innerWidth,
  singleLayers,
  velocityWidth,
  type FlowArchitecture,
  type FlowTransformerConfig,
} from '../../compute/nets/flow/config.js';
import { flowAdapter, flowParameters, isIpAdapter } from '../../compute/nets/flow/parameters.js';
import { embedderTypes, imageEncoderTypes } from '../../compute/nets/clip/config.js';
import { sizeOf, type Shape } from '../../compute/graph/ir.js';
import { embedderBytes, imageEncoderBytes } from '../../models/networks/clip.js';
import { rootOf } from '../../models/adapters/files.js';
import { describeModel, readableParts } from '../../models/adapters/decoder.js';
import { cachedSnapshot } from '../../models/hub/cache.js';
import { PipelineTextEncoder } from '../../train/environments/pipeline_text.js';
import { describeFlowModel } from '../../train/policies/flow/load.js';
import { takesGuidance } from '../../train/policies/flow/rows.js';
import {
  FLOAT,
  flowModelParameters,
  frozenFlowBytes,
  HALF,
  type AutoencoderShape,
  type DecodingShape,
  type FlowCounts,
  type FlowModelShape,
  type GraphsShape,
  type ImageTokenizerShape,
  type ModelShape,
  type ShapeOf,
} from '../../recipes/shared/memory.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import { EditrlError, must } from '../../core/errors.js';
import type { RunSettings } from '../../config/schema/run.js';

/** The shapes of models that runs make, and of models on this machine. */
export function shapesOf(runs: ReadonlyMap<string, RunSettings>): ShapeOf {
  const folders = new Map<string, ModelShape | null>();
  const shapeOf: ShapeOf = (reference) => {
    const folder = typeof reference === 'string' ? reference : 'hub' in reference ? cachedSnapshot(reference) : null;
    if (folder !== null) {
      if (!folders.has(folder)) folders.set(folder, shapeOfFolder(folder));
      return folders.get(folder) ?? null;
    }
    const made = typeof reference === 'object' && 'run' in reference ? runs.get(reference.run) : undefined;
    return made !== undefined && isTrainable(made) ? recipeOf(made).shape(made, shapeOf) : null;
  };
  return shapeOf;
}

/** Null if the model in a folder cannot be opened, which its user reports. */
function shapeOfFolder(folder: string): ModelShape | null {
  try {
    if (isPipeline(folder)) return pipelineShape(readPipeline(folder));
    const config = readConfig<{ readonly _class_name?: unknown; readonly model_type?: unknown }>(rootOf(folder));
    if (autoencoderClasses.includes(String(config._class_name))) {
      return autoencoderShape(describeAutoencoder(folder));
    }
    const type = String(config.model_type);
    if (emu3VisionTypes.includes(type) && type !== WHOLE) return imageTokenizerShape(readEmu3Vision(config, folder));
    if (imageEncoderTypes.includes(type)) return { kind: 'graphs', bytes: imageEncoderBytes(folder) };
    if (embedderTypes.includes(type)) {
      return { kind: 'graphs', bytes: embedderBytes(folder), visionBytes: imageEncoderBytes(folder) };
    }
    return '_class_name' in config
      ? flowShape(describeFlowModel(folder))
      : describeModel(folder, readableParts(folder));
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}

/** Width of a token of published models: four latents of 16 channels, in FLUX.2 of 32. */
const LATENT_TOKENS: Readonly<Record<FlowArchitecture, number>> = { flux: 64, flux2: 128, qwen_image: 64, sd3: 64 };
/** Side in pixels of the square that such a token represents. */
const LATENT_SIDE = 16;

function imagePromptOf(config: FlowTransformerConfig): FlowModelShape['imagePrompt'] {
  const adapter = config.ip_adapter;
  return adapter === null ? null : { tokens: adapter.tokens, width: adapter.image_embed_dim };
}

function countsOf(config: FlowTransformerConfig): FlowCounts {
  const shapes = flowParameters(config);
  const sizes = [...shapes].filter(([name]) => !isIpAdapter(name)).map(([, shape]) => sizeOf(shape));
  const { layers } = flowAdapter(config, { rank: 1, alpha: 1, rslora: false, targets: 'all-linear' });
  const sides = [...layers].flatMap((layer) => must(shapes.get(`${layer}.weight`), layer));
  return {
    parameters: sizes.reduce((sum, size) => sum + size, 0),
    widest: Math.max(...sizes),
    adapted: sides.reduce((sum, side) => sum + side, 0),
  };
}

/** The shape of a transformer. */
function flowShape(config: FlowTransformerConfig): FlowModelShape {
  const { num_attention_heads: heads, num_layers: layers, joint_attention_dim: textWidth } = config;
  const token = velocityWidth(config);
  return {
    kind: 'flow',
    width: innerWidth(config),
    heads,
    layers,
    singleLayers: singleLayers(config),
    exact: countsOf(config),
    textWidth,
    // Latents that are not pixels are assumed to be those of published models.
    patch: token === LATENT_TOKENS[config.architecture] ? LATENT_SIDE : Math.max(1, Math.round(Math.sqrt(token / 3))),
    ...(config.in_channels > token ? { mediaBeside: true } : {}),
    imagePrompt: imagePromptOf(config),
    conditionDropout: takesGuidance(config) ? null : config.condition_dropout,
  };
}

/**
 * All models of a pipeline. While a text encoder is opened, it is in memory twice: as read, and as packed by the engine. In float16 it is there once, with
 * the largest matrix in float32. Raises CheckpointError as opening them.
 */
function pipelineShape(pipeline: Pipeline): GraphsShape {
  const transformer = flowShape(describeFlowModel(partFolder(pipeline, 'transformer')));
  const { decoding } = autoencoderShape(describeAutoencoder(partFolder(pipeline, 'vae')));
  const { parameters, largest, widest } = new PipelineTextEncoder(pipeline);
  const wordsBytes = FLOAT * (parameters + largest);
  const wordsHalfBytes = HALF * parameters + FLOAT * widest;
  const numbers = flowModelParameters(transformer);
  const [bytes, halfBytes] = (['float32', 'float16'] as const).map(
    (held) =>
      frozenFlowBytes(transformer, numbers, held) + decoding.bytes + (held === 'float32' ? wordsBytes : wordsHalfBytes),
  );
  return { kind: 'graphs', bytes, halfBytes, wordsBytes, wordsHalfBytes, bytesPerPixel: decoding.bytesPerPixel };
}

/**
 * Values per pixel at the peak of decoding an image, per channel of the decoder's largest images. Measured with FLUX's autoencoder at 256 and 512 pixels and
 * with Emu3's image tokenizer at 512 pixels.
 */
const DECODED_PER_CHANNEL = 12;

/** The memory of decoding images, from the decoder's parameters and the channels of its largest images. */
function decodingShape(parameters: ReadonlyMap<string, Shape>, channels: number): DecodingShape {
  const count = [...parameters.values()].reduce((sum, shape) => sum + sizeOf(shape), 0);
  return { bytes: FLOAT * count, bytesPerPixel: FLOAT * DECODED_PER_CHANNEL * channels };
}

/** The shape of an autoencoder, and the memory of its decoder. */
function autoencoderShape(net: FrozenAutoencoder): AutoencoderShape & { readonly decoding: DecodingShape } {
  return {
    kind: 'autoencoder',
    reduction: net.reduction,
    decoding: decodingShape(frozenParameters(net), net.widest),
  };
}

/** The shape of Emu3's image tokenizer, and the memory of its decoder. */
function imageTokenizerShape(config: Emu3VisionConfig): ImageTokenizerShape {
  return {
    kind: 'vision_tokenizer',
    patch: patchOf(config),
    decoding: decodingShape(emu3VisionParameters(config), config.ch),
  };
}
