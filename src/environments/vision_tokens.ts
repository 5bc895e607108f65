/** Image tokenizers from their folders: those that this program trains, and those that another program exported. */
import { join } from 'node:path';
import { CheckpointError } from '../core/errors.js';
import { CONFIG_FILE, readConfig, readWeights, tensorFiles } from '../models/files.js';
import { imageTokenizerParameters, type ImageTokenizerConfig } from '../nets/image_tokenizer.js';
import type { SessionOptions } from '../engines/onnx/session.js';
import { EXPORTED, ExportedVisionTokenizer } from './exported_vision_tokens.js';
import { TrainedVisionTokenizer } from './trained_vision_tokens.js';
import type { VisionTokenizer } from './vision_tokenizer.js';

/** Raises CheckpointError for files that are missing or do not fit. */
export function loadVisionTokenizer(folder: string, session: SessionOptions): VisionTokenizer {
  const config = readConfig<Record<string, unknown>>(folder);
  const type = config['model_type'];
  if (type === EXPORTED) return new ExportedVisionTokenizer(folder, config, session);
  if (type !== undefined) {
    throw new CheckpointError(
      `the image tokenizer is a ${JSON.stringify(type)}; covered: ${EXPORTED}, and those trained here`,
      {
        where: join(folder, CONFIG_FILE),
        next: 'Export it: scripts/export_emu3_vision makes the folder to name instead.',
      },
    );
  }
  const own = config as unknown as ImageTokenizerConfig;
  return new TrainedVisionTokenizer(own, readWeights(tensorFiles(folder), imageTokenizerParameters(own)), session);
}
