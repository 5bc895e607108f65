/** Opens the frozen models around a flow transformer. */
import { sessionOptions } from '../engines/onnx/session_options.js';
import { ExportedCodec, isExportedAutoencoder } from '../environments/flow_parts.js';
import { AutoencoderCodec, pixelCodec, type PictureCodec } from '../environments/picture_codec.js';
import { modelFolder, type RunResolver } from '../models/reference.js';
import type { EngineSettings, ModelReference } from '../schema/model.js';

/**
 * Converts between pictures and latents; latents are the pixels if no autoencoder is named. Raises CheckpointError when the autoencoder cannot be
 * read.
 */
export function openCodec(vae: ModelReference | null, engine: EngineSettings, resolveRun: RunResolver): PictureCodec {
  if (vae === null) return pixelCodec;
  const folder = modelFolder(vae, resolveRun);
  const options = sessionOptions(engine);
  return isExportedAutoencoder(folder) ? new ExportedCodec(folder, options) : AutoencoderCodec.open(folder, options);
}
