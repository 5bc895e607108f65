/** Opens the frozen models around a flow transformer. */
import type { StorageDtype } from '../../../core/safetensors.js';
import { PipelineTextEncoder } from '../../../train/environments/pipeline_text.js';
import { QwenTextEncoder } from '../../../train/environments/qwen_text.js';
import type { PromptEncoder } from '../../../train/environments/word_encoder.js';
import { isPipeline, readPipeline } from '../../../models/pipeline.js';
import type { ModelFileOptions } from '../../../compute/onnx/model_file.js';
import { sessionOptions } from '../../../compute/onnx/session.js';
import { AutoencoderCodec, pixelCodec, type ImageCodec } from '../../../train/environments/image_codec.js';
import { modelFolder, type RunResolver } from '../../../models/reference.js';
import type { EngineSettings, ModelReference } from '../../../config/schema/model.js';

/**
 * Converts between images and latents. Latents are the pixels if no autoencoder is named. Raises CheckpointError when the autoencoder cannot be
 * read.
 */
export function openCodec(vae: ModelReference | null, engine: EngineSettings, resolveRun: RunResolver): ImageCodec {
  if (vae === null) return pixelCodec;
  return AutoencoderCodec.open(modelFolder(vae, resolveRun), sessionOptions(engine));
}

/** Opens the text encoders of a pipeline, or the one of Qwen-Image, stored in the dtype of the engine. Raises CheckpointError if it cannot be read. */
export function openTextEncoder(
  reference: ModelReference,
  engine: EngineSettings,
  resolveRun: RunResolver,
): PromptEncoder {
  return textEncoderIn(modelFolder(reference, resolveRun), sessionOptions(engine), engine.dtype);
}

/** The same by its folder. */
export function textEncoderIn(
  folder: string,
  options: ModelFileOptions = {},
  held: StorageDtype = 'float32',
): PromptEncoder {
  return isPipeline(folder)
    ? new PipelineTextEncoder(readPipeline(folder), options, held)
    : new QwenTextEncoder(folder, options, held);
}
