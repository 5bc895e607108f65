/**
 * LoRA in the form of diffusers' pipelines, which `pipe.load_lora_weights(folder)` reads. PEFT's tensors have another prefix, and its description of
 * the adapter is a file of its own instead of metadata.
 */
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { readSafetensorsIndex } from '../../core/safetensors.js';
import type { ModuleNames } from '../../compute/nets/lora.js';

export const DIFFUSERS_LORA_FILE = 'pytorch_lora_weights.safetensors';
/** The part of a pipeline that is adapted, before the name of each tensor and each key of the metadata. */
const PART = 'transformer.';
const METADATA = 'lora_adapter_metadata';

/** A tensor: its layer, and which of both matrices. */
export const DIFFUSERS_LORA_TENSOR = /^transformer\.(.+)\.(lora_[AB])\.weight$/;

/** Names of parameters in these files. */
export const inDiffusers: ModuleNames = (name) => `${PART}${name}`;

/** The metadata of a file, from the content of an adapter_config.json. */
export function diffusersMetadata(config: object): Readonly<Record<string, string>> {
  const keyed = Object.entries(config).map(([key, value]): [string, unknown] => [PART + key, value]);
  const sorted = keyed.sort(([a], [b]) => (a < b ? -1 : 1));
  return { format: 'pt', [METADATA]: JSON.stringify(Object.fromEntries(sorted), null, 2) };
}

const described = z.record(z.string(), z.json());

/**
 * The content of an adapter_config.json, from a file's metadata. Without metadata the tensors give rank and layers, and alpha is the rank, as in
 * diffusers. Raises CheckpointError for metadata that is not JSON, and for tensors other than LoRA's on the transformer.
 */
export function diffusersLoraConfig(file: string): Readonly<Record<string, unknown>> {
  const { metadata, entries } = readSafetensorsIndex(file);
  const layers = new Set<string>();
  for (const name of entries.keys()) {
    const layer = DIFFUSERS_LORA_TENSOR.exec(name)?.[1];
    if (layer === undefined) {
      throw new CheckpointError(`found ${name}, which is not a tensor of LoRA on a transformer`, {
        where: file,
        next: 'Save the adapter again in Python: load it with pipe.load_lora_weights and call pipe.save_lora_weights.',
      });
    }
    layers.add(layer);
  }
  const rank = [...entries].find(([name]) => name.endsWith('.lora_A.weight'))?.[1].shape[0];
  const found = { peft_type: 'LORA', r: rank, lora_alpha: rank, target_modules: [...layers].sort() };
  if (!Object.hasOwn(metadata, METADATA)) return found;
  let json: unknown = null;
  try {
    json = JSON.parse(metadata[METADATA]);
  } catch (cause) {
    throw new CheckpointError(`its ${METADATA} is not JSON`, { where: file, cause });
  }
  const parsed = described.safeParse(json);
  if (!parsed.success) throw new CheckpointError(`its ${METADATA} is not a JSON object`, { where: file });
  const own = Object.entries(parsed.data).filter(([key]) => key.startsWith(PART));
  return { ...found, ...Object.fromEntries(own.map(([key, value]) => [key.slice(PART.length), value])) };
}
