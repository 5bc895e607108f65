/** Adapters over frozen weights in the files of PEFT: `adapter_config.json` and `adapter_model.safetensors`. */
import { createHash } from 'node:crypto';
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, must } from '../../core/errors.js';
import { sha256 } from '../../core/image.js';
import { readSafetensorsIndex } from '../../core/safetensors.js';
import type { WeightsLayout } from '../../engines/onnx/trained_weights.js';
import { readJson, readWeights, tensorFiles, tensorsOf, type Weights } from '../../models/files.js';
import { describeDecoder, openDecoder } from '../../nets/decoder/files.js';
import { decoderAdapter, withAdapter, type DecoderConfig } from '../../nets/decoder/config.js';
import { initAdapter, isAdapters, type Adapter, type LoraSettings } from '../../nets/lora.js';
import type { AdapterOrigin, PolicyModel } from './model.js';

export const ADAPTER_CONFIG_FILE = 'adapter_config.json';
const ADAPTER_FILE = 'adapter_model.safetensors';
/** Before a parameter's name in PEFT's files. */
const PREFIX = 'base_model.model.';

/** In the header of the adapter's weights: the digest of those that it stands on. */
const BASE_DIGEST = 'base_model_sha256';

const stored = (name: string): string => `${PREFIX}${name}`;

export function adapterLayout({ adapter }: AdaptedModel): WeightsLayout {
  return { file: ADAPTER_FILE, stored, metadata: { format: 'pt', [BASE_DIGEST]: adapter.baseDigest } };
}

/** A model of frozen weights with an adapter. */
export type AdaptedModel = PolicyModel & {
  readonly config: { readonly adapter: Adapter };
  readonly adapter: AdapterOrigin;
};

export function isAdapted(model: PolicyModel): model is AdaptedModel {
  return model.config.adapter !== undefined && model.adapter !== undefined;
}

/** Whether a folder holds an adapter alone. */
export function holdsAdapter(folder: string): boolean {
  return existsSync(join(folder, ADAPTER_CONFIG_FILE));
}

/** The starting weights: the model without what its adapter adds, which shares the frozen ones; a copy of all where there is no adapter. */
export function referenceWeights({ config, weights }: PolicyModel): Weights {
  const kept = ([name, { shape, data }]: [string, { shape: readonly number[]; data: Float32Array }]) => {
    if (config.adapter === undefined) return { shape, data: data.slice() };
    // B = 0 adds nothing, whatever A is.
    return name.endsWith('.lora_B.weight') ? { shape, data: new Float32Array(data.length) } : { shape, data };
  };
  return new Map([...weights].map((entry) => [entry[0], kept(entry)]));
}

/** A decoder with a fresh adapter, or with the one that `from` holds. */
export function adapt(
  config: DecoderConfig,
  frozen: Weights,
  lora: LoraSettings,
  start: { readonly seed: number } | { readonly from: string },
): { readonly config: DecoderConfig & { readonly adapter: Adapter }; readonly weights: Weights } {
  const adapted = withAdapter(config, lora);
  const weights =
    'seed' in start
      ? initAdapter(adapted.adapter, (name) => must(frozen.get(name), name).shape, start.seed)
      : readWeights(tensorsOf(join(start.from, ADAPTER_FILE)), decoderAdapter(adapted), stored);
  return { config: adapted, weights: new Map([...frozen, ...weights]) };
}

/** PEFT's description of an adapter. */
export function adapterConfigJson({ adapter: { lora, base } }: AdaptedModel): string {
  const { rank, alpha, rslora, targets } = lora;
  const json = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base,
    r: rank,
    lora_alpha: alpha,
    target_modules: targets,
    lora_dropout: 0,
    bias: 'none',
    use_rslora: rslora,
    fan_in_fan_out: false,
    inference_mode: true,
    modules_to_save: null,
  };
  return `${JSON.stringify(json, null, 2)}\n`;
}

const configSchema = z.object({
  peft_type: z.literal('LORA'),
  base_model_name_or_path: z.string().min(1),
  r: z.int().positive().default(8),
  lora_alpha: z.number().positive().default(8),
  target_modules: z.union([z.string(), z.array(z.string())]),
  use_rslora: z.boolean().default(false),
  use_dora: z.literal(false).nullish(),
  bias: z.literal('none').default('none'),
  modules_to_save: z.union([z.null(), z.array(z.never())]).optional(),
  rank_pattern: z.object({}).strict().optional(),
  alpha_pattern: z.object({}).strict().optional(),
});

/** What a folder's adapter is, and on what it stands; the digest is null where the file names none. Raises CheckpointError for an adapter that is not covered. */
export function readAdapterConfig(folder: string): Omit<AdapterOrigin, 'baseDigest'> & { baseDigest: string | null } {
  const where = join(folder, ADAPTER_CONFIG_FILE);
  const parsed = configSchema.safeParse(readJson(where));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new CheckpointError(`this adapter is not covered: ${issue.path.join('.')}: ${issue.message}`, {
      where,
      next: 'Covered is LoRA of one rank over linear layers, without biases, DoRA or modules that are saved whole.',
    });
  }
  const { r, lora_alpha, use_rslora, target_modules, base_model_name_or_path } = parsed.data;
  return {
    lora: { rank: r, alpha: lora_alpha, rslora: use_rslora, targets: target_modules },
    base: base_model_name_or_path,
    baseDigest: readSafetensorsIndex(join(folder, ADAPTER_FILE)).metadata[BASE_DIGEST] ?? null,
  };
}

/** SHA-256 over the digests of the files that hold a folder's weights, its adapter's included, in the order of their names. */
export function digestOfWeights(folder: string): string {
  if (holdsAdapter(folder)) {
    const { base } = readAdapterConfig(folder);
    return sha256(`${digestOfWeights(base)} ${sha256File(join(folder, ADAPTER_FILE))}`);
  }
  const files = [...new Set(tensorFiles(folder).values())].sort();
  return sha256(files.map(sha256File).join(' '));
}

/** A file's SHA-256, read piece by piece: weights need not fit into memory twice. */
function sha256File(path: string): string {
  const hash = createHash('sha256');
  const file = openSync(path, 'r');
  try {
    const piece = Buffer.allocUnsafe(1 << 20);
    for (let read = readSync(file, piece); read > 0; read = readSync(file, piece)) hash.update(piece.subarray(0, read));
    return hash.digest('hex');
  } finally {
    closeSync(file);
  }
}

/** A model's settings and weights; those of an adapter's folder are its base's with what the adapter adds. */
export interface OpenedModel {
  readonly config: DecoderConfig;
  readonly weights: Weights;
}

/** What a folder's config.json says, or that of its adapter's base. Raises as `openModel`, but for the weights. */
export function describeModel(folder: string): DecoderConfig {
  return holdsAdapter(folder) ? describeModel(baseOf(folder)) : describeDecoder(folder).config;
}

/** The folder of an adapter's base. */
function baseOf(folder: string): string {
  const { base } = readAdapterConfig(folder);
  if (existsSync(base)) return base;
  throw new CheckpointError(`the adapter stands on ${base}, which is not there`, {
    where: join(folder, ADAPTER_CONFIG_FILE),
    next: 'Bring the base model back, or correct base_model_name_or_path.',
  });
}

/** Raises as `openDecoder`, and CheckpointError where an adapter's base is not what it was trained on. */
export function openModel(folder: string): OpenedModel {
  if (!holdsAdapter(folder)) return openDecoder(folder);
  const base = baseOf(folder);
  const { lora, baseDigest } = readAdapterConfig(folder);
  refuseOtherBase(folder, baseDigest, digestOfWeights(base));
  const frozen = openModel(base);
  const { config, weights } = adapt(frozen.config, frozen.weights, lora, { from: folder });
  return { config: frozen.config, weights: merged(config.adapter, weights) };
}

/** An adapter is worth nothing on other weights than those that it was trained on. A digest of null is not known. */
export function refuseOtherBase(folder: string, recorded: string | null, found: string): void {
  if (recorded === null || recorded === found) return;
  throw new CheckpointError('the adapter was trained on other weights than its base holds now', {
    where: join(folder, ADAPTER_FILE),
    next: `Bring back the weights whose digest is ${recorded.slice(0, 12)}…; found ${found.slice(0, 12)}….`,
  });
}

/** W + s B A for every layer that is adapted; the frozen weights are changed in place. */
function merged({ layers, rank, scale }: Adapter, weights: Weights): Weights {
  for (const layer of layers) {
    const { shape, data } = must(weights.get(`${layer}.weight`), layer);
    const a = must(weights.get(`${layer}.lora_A.weight`), layer).data;
    const b = must(weights.get(`${layer}.lora_B.weight`), layer).data;
    const [outputs, inputs] = shape;
    for (let o = 0; o < outputs; o++) {
      const row = data.subarray(o * inputs, (o + 1) * inputs);
      for (let k = 0; k < rank; k++) {
        const factor = scale * b[o * rank + k];
        for (let i = 0; i < inputs; i++) row[i] += factor * a[k * inputs + i];
      }
    }
  }
  return new Map([...weights].filter(([name]) => !isAdapters(name)));
}
