/** Reads a language model from a folder in the Hugging Face layout: config.json and one file of weights. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import { readArchitecture } from '../../../../src/compute/nets/decoder/architectures.js';
import { decoderParameters, type DecoderConfig } from '../../../../src/compute/nets/decoder/config.js';

export interface Decoder {
  readonly config: DecoderConfig;
  readonly weights: Map<string, FloatTensor>;
}

export function readDecoder(folder: string): Decoder {
  const path = join(folder, 'config.json');
  const { config } = readArchitecture(JSON.parse(readFileSync(path, 'utf8')), path);
  const weights = readSafetensors(join(folder, 'model.safetensors'), [...decoderParameters(config).keys()]);
  return { config, weights };
}
