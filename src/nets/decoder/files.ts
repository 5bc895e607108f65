/** Opens a decoder from its folder, written by this program or in the Hugging Face layout. */
import { join } from 'node:path';
import { CheckpointError, GraphError } from '../../core/errors.js';
import type { HeldDtype } from '../../core/safetensors.js';
import {
  checkWeights,
  CONFIG_FILE,
  readConfig,
  readWeights,
  tensorFiles,
  type TensorFiles,
  type Weights,
} from '../../models/files.js';
import { readArchitecture, type Architecture, type ReadPart } from './architectures.js';
import { VISUAL } from '../vision/config.js';
import { checkDecoderConfig, decoderParameters, type DecoderConfig } from './config.js';

export interface LoadedDecoder extends Architecture {
  readonly weights: Weights;
}

/**
 * Raises CheckpointError for a folder without config or weights, an architecture that is not covered, sizes that do not go together, the
 * first tensor that is missing or of another shape, and as `readWeights` for what cannot be held so.
 */
export function openDecoder(folder: string, part: ReadPart = 'words', held: HeldDtype = 'float32'): LoadedDecoder {
  const { config, contextSize, files, expected, stored } = findDecoder(folder, part);
  return { config, contextSize, weights: readWeights(files, expected, stored, held) };
}

/** Looks at what `openDecoder` would read, without reading its weights. Raises as that does. */
export function checkDecoder(folder: string, part: ReadPart = 'words'): Architecture {
  const { config, contextSize, files, expected, stored } = findDecoder(folder, part);
  checkWeights(files, expected, stored);
  return { config, contextSize };
}

interface FoundDecoder extends Architecture {
  readonly files: TensorFiles;
  /** Shapes by the names of the architecture. */
  readonly expected: ReadonlyMap<string, readonly number[]>;
  /** From such a name to that in the files. */
  readonly stored: (name: string) => string;
}

function findDecoder(folder: string, part: ReadPart): FoundDecoder {
  const { config, contextSize } = describeDecoder(folder, part);
  requireSizes(config, join(folder, CONFIG_FILE));
  const files = tensorFiles(folder);
  const stored = storedNames(files, folder);
  if (!config.tie_word_embeddings && !files.has(stored('lm_head.weight'))) {
    throw new CheckpointError('the weights hold no lm_head.weight, and tie_word_embeddings is false', {
      where: folder,
      next: `If the output head shares the embeddings, say so in ${CONFIG_FILE}: "tie_word_embeddings": true.`,
    });
  }
  const expected = new Map([...decoderParameters(config)].map(([name, { shape }]) => [name, shape]));
  return { config, contextSize, files, expected, stored };
}

function requireSizes(config: DecoderConfig, where: string): void {
  try {
    checkDecoderConfig(config);
  } catch (error) {
    throw error instanceof GraphError ? new CheckpointError(error.message, { where, cause: error }) : error;
  }
}

/** The config in a folder's config.json, without the weights. Raises as `openDecoder` does. */
export function describeDecoder(folder: string, part: ReadPart = 'words'): Architecture {
  const json = readConfig<Record<string, unknown>>(folder);
  // This program's own checkpoints hold the decoder's settings as they are.
  if (!('model_type' in json) && 'vocab_size' in json) {
    return { config: json as unknown as DecoderConfig, contextSize: null };
  }
  return readArchitecture(json, join(folder, CONFIG_FILE), part);
}

/** Prefixes of tensor names here and in files of vision models: of the text model, of the head, and of the vision encoder. */
const prefixes = [
  { model: 'model.', head: '', visual: '' },
  { model: 'model.language_model.', head: '', visual: 'model.' },
  { model: 'language_model.model.', head: 'language_model.', visual: '' },
  { model: 'text_model.model.', head: 'text_model.', visual: '' },
  { model: 'model.text_model.', head: '', visual: '' },
] as const;

/** From a parameter's name to that in the files. */
export function storedNames(files: Pick<TensorFiles, 'has'>, folder: string): (name: string) => string {
  const found = prefixes.find(({ model }) => files.has(`${model}embed_tokens.weight`));
  if (found === undefined) {
    const allowed = prefixes.map(({ model }) => `${model}embed_tokens.weight`).join(', ');
    throw new CheckpointError(`the weights hold no embeddings; allowed names: ${allowed}`, { where: folder });
  }
  return (name) => {
    if (name.startsWith(VISUAL)) return `${found.visual}${name}`;
    return name.startsWith('model.') ? `${found.model}${name.slice('model.'.length)}` : `${found.head}${name}`;
  };
}
