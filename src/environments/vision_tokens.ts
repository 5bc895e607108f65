/** Loads image tokenizers from their folders: those that this program trains, and exports of other programs. */
import { join } from 'node:path';
import { CheckpointError } from '../core/errors.js';
import { EXPORTED } from '../models/exported.js';
import { checkWeights, CONFIG_FILE, readConfig, readWeights, tensorFiles } from '../models/files.js';
import { imageTokenizerParameters, type ImageTokenizerConfig } from '../nets/image_tokenizer.js';
import type { SessionOptions } from '../engines/onnx/session.js';
import { ExportedVisionTokenizer, readExport } from './exported_vision_tokens.js';
import { TrainedVisionTokenizer } from './trained_vision_tokens.js';
import type { VisionTokenizer, VisionTokenizerConfig } from './vision_tokenizer.js';

/** Checks a folder without computing or reading weights. Raises as `loadVisionTokenizer` does. */
export function describeVisionTokenizer(folder: string): VisionTokenizerConfig {
  const config = readKnown(folder);
  if (config['model_type'] === EXPORTED) return readExport(folder, config);
  const own = config as unknown as ImageTokenizerConfig;
  checkWeights(tensorFiles(folder), imageTokenizerParameters(own));
  return own;
}

/** Raises CheckpointError for files that are missing or do not fit. */
export function loadVisionTokenizer(folder: string, session: SessionOptions): VisionTokenizer {
  const config = readKnown(folder);
  if (config['model_type'] === EXPORTED) return new ExportedVisionTokenizer(folder, config, session);
  const own = config as unknown as ImageTokenizerConfig;
  return new TrainedVisionTokenizer(own, readWeights(tensorFiles(folder), imageTokenizerParameters(own)), session);
}

/** Reads the config.json of a supported kind. Image tokenizers trained here have no `model_type`. */
function readKnown(folder: string): Readonly<Record<string, unknown>> {
  const config = readConfig<Readonly<Record<string, unknown>>>(folder);
  const type = config['model_type'];
  if (type !== undefined && type !== EXPORTED) {
    throw new CheckpointError(
      `the image tokenizer is a ${JSON.stringify(type)}; covered: ${EXPORTED}, and those trained here`,
      {
        where: join(folder, CONFIG_FILE),
        next: 'Export it: scripts/export_emu3_vision makes the folder to name instead.',
      },
    );
  }
  return config;
}
