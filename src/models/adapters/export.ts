/**
 * Exports a run's training result as files that other programs load: an adapter in the form of PEFT or diffusers, or a
 * whole model in transformers'.
 */
import { closeSync, copyFileSync, cpSync, existsSync, openSync, readdirSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError, must } from '../../core/errors.js';
import {
  toStoredBytes,
  readSafetensors,
  readSafetensorsIndex,
  safetensorsHeader,
  safetensorsPieces,
  DTYPE_BYTES,
  type FloatTensor,
  type WrittenDtype,
} from '../../core/safetensors.js';
import {
  CONFIG_FILE,
  DIFFUSERS_FILE,
  GENERATION_FILE,
  INDEX_FILE,
  POLICY_FILE,
  readJson,
  requireHere,
  SERVED_FILE,
  tensorFiles,
  TOKENIZER_FILE,
} from '../files.js';
import type { DecoderConfig, Trait } from '../../compute/nets/decoder/config.js';
import { storedNames } from '../networks/decoder.js';
import { flowClasses, hasOwnSettings } from '../../compute/nets/flow/config.js';
import { loraScale, type LoraSettings } from '../../compute/nets/lora.js';
import { DIFFUSERS_LORA_FILE, diffusersMetadata, inDiffusers } from './diffusers_lora.js';
import {
  ADAPTER_CONFIG_FILE,
  ADAPTER_FILE,
  adapterFile,
  adapterLayout,
  baseOf,
  describeAdapter,
  descriptionOf,
  digestOfWeights,
  holdsAdapter,
  loraLayers,
  mergeLayer,
  readAdapterConfig,
  recordedBase,
  rejectOtherBase,
  rootOf,
  type LayerMatrices,
} from './files.js';
import { describeModel, peftNames, readableParts, storedAdapterWeights, withStoredAdapter } from './decoder.js';
import { z } from 'zod';
import { specialNames } from '../tokenizer/open.js';
import { TOKENIZER_CONFIG_FILE } from '../tokenizer/texts.js';

/** By their usual names. */
export const exportedDtypes = { float32: 'F32', bfloat16: 'BF16', float16: 'F16' } as const satisfies Record<
  string,
  WrittenDtype
>;
export type ExportedDtype = keyof typeof exportedDtypes;

/** An adapter, a whole model of transformers, or the checkpoint's own files. */
export type ExportedFormat = 'adapter' | 'merged' | 'checkpoint';

/** Writes a checkpoint's model into a folder. The number format is for merged weights. */
export const exportWriters: Readonly<
  Record<ExportedFormat, (checkpoint: string, folder: string, dtype: ExportedDtype) => void>
> = {
  adapter: exportAdapter,
  merged: (checkpoint, folder, dtype) => exportMerged(checkpoint, folder, { dtype }),
  checkpoint: exportFiles,
};

/** Largest size of a file with weights. */
const SHARD_BYTES = 5e9;

/** Files of a checkpoint that only serve to continue training. */
const ofTraining: ReadonlySet<string> = new Set([
  'optimizer.safetensors',
  'ema.safetensors',
  'trainer.json',
  'MANIFEST.json',
  SERVED_FILE,
]);

/**
 * The form in which other programs load a checkpoint's model. Null for a policy other than a language model. Raises
 * CheckpointError when its description is not JSON.
 */
export function formatOf(checkpoint: string): 'adapter' | 'merged' | null {
  if (holdsAdapter(checkpoint)) {
    const { task_type: task } = readJson(join(checkpoint, ADAPTER_CONFIG_FILE)) as { readonly task_type?: unknown };
    return task === 'CAUSAL_LM' ? 'adapter' : null;
  }
  requireHere(checkpoint);
  if (!existsSync(join(checkpoint, CONFIG_FILE))) return null;
  const config = readJson(join(checkpoint, CONFIG_FILE)) as object;
  return 'model_type' in config || ('num_hidden_layers' in config && 'vocab_size' in config) ? 'merged' : null;
}

/**
 * Copies a checkpoint without the files that are only needed to continue training. The weights get diffusers' file name
 * if config.json names a class of diffusers.
 */
export function exportFiles(checkpoint: string, folder: string): void {
  requireHere(checkpoint);
  const config = join(checkpoint, CONFIG_FILE);
  const isOfDiffusers = existsSync(config) && '_class_name' in (readJson(config) as object);
  for (const name of readdirSync(checkpoint)) {
    const written = isOfDiffusers && name === POLICY_FILE ? DIFFUSERS_FILE : name;
    if (!ofTraining.has(name)) cpSync(join(checkpoint, name), join(folder, written), { recursive: true });
  }
  completeTokenizerConfig(folder, [folder]);
}

/**
 * Writes the adapter of a checkpoint and its tokenizer into a folder, in diffusers' form if it is LoRA of a transformer of diffusers. Raises
 * CheckpointError for a checkpoint without an adapter.
 */
export function exportAdapter(checkpoint: string, folder: string): void {
  if (!holdsAdapter(checkpoint)) {
    requireHere(checkpoint);
    throw new CheckpointError('the checkpoint has no adapter: the run trains all weights', {
      where: checkpoint,
      next: 'Export the whole model: --format merged.',
    });
  }
  if (isDiffusersLora(checkpoint)) {
    exportDiffusersLora(checkpoint, folder);
    return;
  }
  for (const file of [ADAPTER_CONFIG_FILE, ADAPTER_FILE]) copyFileSync(join(checkpoint, file), join(folder, file));
  copyTokenizer(checkpoint, folder);
  completeTokenizerConfig(folder, [checkpoint]);
}

/** Whether a checkpoint is LoRA of a model that diffusers computes as this program does. */
function isDiffusersLora(checkpoint: string): boolean {
  if (formatOf(checkpoint) !== null || describeAdapter(checkpoint).kind !== 'lora') return false;
  const config = JSON.parse(descriptionOf(checkpoint)) as Readonly<Record<string, unknown>>;
  return '_class_name' in config && !hasOwnSettings(config);
}

/** One LoRA of a chain. */
interface ChainedLora {
  readonly folder: string;
  readonly lora: LoraSettings;
  readonly base: string;
  readonly layers: ReadonlyMap<string, LayerMatrices>;
}

/**
 * Writes the sum of a chain of LoRAs over the whole model below them, for `pipe.load_lora_weights(folder)`. Its adapter_config.json names that model
 * for this program.
 */
function exportDiffusersLora(checkpoint: string, folder: string): void {
  const chain = loraChain(checkpoint);
  const last = must(chain.at(-1), 'an adapter');
  const { lora, layers } = chain.length === 1 ? last : summed(chain);
  const names = [...layers.keys()].sort();
  const config = {
    ...(readJson(join(last.folder, ADAPTER_CONFIG_FILE)) as object),
    ...{ r: lora.rank, lora_alpha: lora.alpha, use_rslora: lora.rslora, target_modules: names },
    ...{ exclude_modules: null, layers_to_transform: null, layers_pattern: null },
  };
  writeFileSync(join(folder, ADAPTER_CONFIG_FILE), `${JSON.stringify(config, null, 2)}\n`);
  const tensors = names.flatMap((name) => {
    const { a, b } = must(layers.get(name), name);
    return [[inDiffusers(`${name}.lora_A.weight`), a] as const, [inDiffusers(`${name}.lora_B.weight`), b] as const];
  });
  const { metadata: top } = readSafetensorsIndex(adapterFile(checkpoint));
  const digest = recordedBase(last.folder);
  const metadata = {
    ...top,
    ...(digest === null ? {} : adapterLayout({ base: last.base, baseDigest: digest }).metadata),
    ...diffusersMetadata(config),
  };
  writeFileSync(join(folder, DIFFUSERS_LORA_FILE), Buffer.concat(safetensorsPieces(new Map(tensors), metadata)));
}

/** The LoRAs of a chain, from the last one trained to the one over a whole model. Raises CheckpointError for other adapters in it. */
function loraChain(folder: string): ChainedLora[] {
  const { lora, base } = readAdapterConfig(folder);
  const own = { folder, lora, base, layers: loraLayers(folder) };
  const below = baseOf(folder);
  if (!holdsAdapter(below)) return [own];
  rejectOtherBase(folder, recordedBase(folder), digestOfWeights(below));
  return [own, ...loraChain(below)];
}

/** Combines LoRAs into one by concatenating ranks: s1 B1 A1 + s2 B2 A2 = [s1 B1, s2 B2] [A1; A2]. Layers that one of them lacks count as zeros. */
function summed(chain: readonly ChainedLora[]): Pick<ChainedLora, 'lora' | 'layers'> {
  const rank = chain.reduce((sum, { lora }) => sum + lora.rank, 0);
  const layers = new Map<string, LayerMatrices>();
  let first = 0;
  for (const { lora, layers: own } of chain) {
    const scale = loraScale(lora);
    for (const [name, { a, b }] of own) {
      const [outputs, inputs] = [b.shape[0], a.shape[1]];
      const zeros = (shape: readonly number[]): FloatTensor => ({ shape, data: new Float32Array(shape[0] * shape[1]) });
      const sum = layers.get(name) ?? { a: zeros([rank, inputs]), b: zeros([outputs, rank]) };
      layers.set(name, sum);
      sum.a.data.set(a.data, first * inputs);
      for (let o = 0; o < outputs; o++) {
        for (let k = 0; k < lora.rank; k++) sum.b.data[o * rank + first + k] = scale * b.data[o * lora.rank + k];
      }
    }
    first += lora.rank;
  }
  return { lora: { rank, alpha: rank, rslora: false, targets: [] }, layers };
}

/**
 * Writes the whole model of a checkpoint into a folder, tensor by tensor, with adapters merged into their base. Raises CheckpointError when it is
 * neither a language model nor a transformer of diffusers, when the base is not the one that an adapter was trained on, and when a number is too large
 * for the number format.
 */
export function exportMerged(
  checkpoint: string,
  folder: string,
  { dtype, shardBytes = SHARD_BYTES }: { readonly dtype: ExportedDtype; readonly shardBytes?: number },
): void {
  const described = JSON.parse(descriptionOf(checkpoint)) as Readonly<Record<string, unknown>>;
  if (flowClasses.includes(String(described['_class_name']))) {
    writeFileSync(join(folder, CONFIG_FILE), `${JSON.stringify(withDropout(described, checkpoint), null, 2)}\n`);
    writeShards(folder, tensorsOfFlow(checkpoint), exportedDtypes[dtype], shardBytes, OF_DIFFUSERS);
    return;
  }
  const config = exportedConfig(checkpoint, dtype);
  const tensors = inTransformers(tensorsOfModel(checkpoint), checkpoint);
  writeFileSync(join(folder, CONFIG_FILE), `${JSON.stringify(config, null, 2)}\n`);
  copyTokenizer(checkpoint, folder);
  // The base's sampling settings still apply to the trained model.
  const generation = [rootOf(checkpoint), checkpoint].map((from) => join(from, GENERATION_FILE)).find(existsSync);
  if (generation !== undefined) copyFileSync(generation, join(folder, GENERATION_FILE));
  completeTokenizerConfig(folder, [folder, checkpoint]);
  writeShards(folder, tensors, exportedDtypes[dtype], shardBytes, OF_TRANSFORMERS);
}

/** A tensor that is only read when it is written. */
interface LazyTensor {
  readonly shape: readonly number[];
  readonly read: () => FloatTensor;
}

/** All tensors of a model by their names in the files, with its adapters merged. */
function tensorsOfModel(folder: string): Map<string, LazyTensor> {
  if (!holdsAdapter(folder)) {
    const lazy = new Map<string, LazyTensor>();
    for (const file of new Set(tensorFiles(folder).values())) {
      for (const [name, { shape }] of readSafetensorsIndex(file).entries) {
        lazy.set(name, { shape, read: () => must(readSafetensors(file, [name]).get(name), name) });
      }
    }
    return lazy;
  }
  const base = baseOf(folder);
  rejectOtherBase(folder, recordedBase(folder), digestOfWeights(base));
  const tensors = tensorsOfModel(base);
  const config = describeModel(base, readableParts(base));
  const adapted = withStoredAdapter(config, folder);
  const { adapter } = adapted;
  const weights = storedAdapterWeights(folder, adapted);
  const stored = storedNames(tensors, base);
  for (const layer of adapter.layers) {
    const name = stored(`${layer}.weight`);
    const { shape, read } = must(tensors.get(name), name);
    const readMerged = (): FloatTensor => {
      const tensor = read();
      mergeLayer(adapter, layer, tensor, weights);
      return tensor;
    };
    tensors.set(name, { shape, read: readMerged });
  }
  return tensors;
}

/** A model's tensors by transformers' names, if this program wrote its weights. Others keep the names of the base, which loads. */
function inTransformers(tensors: ReadonlyMap<string, LazyTensor>, checkpoint: string): ReadonlyMap<string, LazyTensor> {
  if (!existsSync(join(rootOf(checkpoint), POLICY_FILE))) return tensors;
  const config = describeModel(checkpoint, readableParts(checkpoint));
  const names = peftNames({ config, description: descriptionOf(checkpoint) });
  return new Map([...tensors].map(([name, tensor]) => [names(name), tensor]));
}

/** All tensors of a flow transformer, with a chain of LoRAs merged. Layers have the same names in all files. */
function tensorsOfFlow(folder: string): Map<string, LazyTensor> {
  const tensors = tensorsOfModel(rootOf(folder));
  const chain = holdsAdapter(folder) ? loraChain(folder) : [];
  for (const { folder: from, lora, layers } of chain.reverse()) {
    rejectOtherBase(from, recordedBase(from), digestOfWeights(baseOf(from)));
    const adapter = { rank: lora.rank, scale: loraScale(lora), layers: new Set(layers.keys()) };
    for (const [layer, { a, b }] of layers) {
      const name = `${layer}.weight`;
      const { shape, read } = must(tensors.get(name), name);
      const matrices = new Map([[`${layer}.lora_A.weight`, a] as const, [`${layer}.lora_B.weight`, b] as const]);
      const readMerged = (): FloatTensor => {
        const tensor = read();
        mergeLayer(adapter, layer, tensor, matrices);
        return tensor;
      };
      tensors.set(name, { shape, read: readMerged });
    }
  }
  return tensors;
}

/** A transformer's config.json, with the share of images without words that its adapter's file records. */
function withDropout(config: Readonly<Record<string, unknown>>, folder: string): object {
  const { metadata } = holdsAdapter(folder) ? readSafetensorsIndex(adapterFile(folder)) : { metadata: {} };
  const recorded = (metadata as Readonly<Record<string, string | undefined>>)['condition_dropout'];
  return recorded === undefined ? config : { ...config, condition_dropout: Number(recorded) };
}

/** The model's config.json in Hugging Face's format. */
function exportedConfig(checkpoint: string, dtype: ExportedDtype): object {
  const json = JSON.parse(descriptionOf(checkpoint)) as Record<string, unknown>;
  const whole = 'model_type' in json ? json : huggingFaceConfig(json, checkpoint);
  const named = 'torch_dtype' in whole ? 'torch_dtype' : 'dtype';
  const { text_config: text } = whole;
  const inner = typeof text === 'object' && text !== null && 'dtype' in text ? { text_config: { ...text, dtype } } : {};
  // The head of the files decides, and other programs follow their config.json.
  const { tie_word_embeddings } = describeModel(checkpoint, readableParts(checkpoint));
  return { ...whole, ...inner, [named]: dtype, tie_word_embeddings };
}

/** Whether a trait belongs to a family other than Llama and Qwen2, whose config.json is written here. */
const ofOthers: Readonly<Record<Trait | 'rope_scaling', boolean>> = {
  attention_bias: false,
  rope_scaling: true,
  qk_norm: true,
  fused_projections: true,
  partial_rotary_factor: true,
  sliding_window: true,
  sliding_layers: true,
  sliding_rope_theta: true,
  attention_output_bias: true,
  mlp_bias: true,
  activation: true,
  query_pre_attn_scalar: true,
  embedding_scale: true,
  norm_scale: true,
  block_norms: true,
};
const otherFamilies = (Object.keys(ofOthers) as (keyof typeof ofOthers)[]).filter((key) => ofOthers[key]);

/** The config of a model made by this program from random weights: Llama's, or Qwen2's if it has biases. */
function huggingFaceConfig(json: Readonly<Record<string, unknown>>, checkpoint: string): Record<string, unknown> {
  const where = join(checkpoint, CONFIG_FILE);
  if (!('num_hidden_layers' in json) || !('vocab_size' in json)) {
    throw new CheckpointError('this is not a language model; only language models can be exported', { where });
  }
  const config = json as unknown as DecoderConfig;
  const { attention_bias, ...sizes } = config;
  const found = otherFamilies.filter((key) => config[key] !== undefined && config[key] !== false);
  if (found.length > 0) {
    throw new CheckpointError(`its family is not recorded, and it has ${found.join(', ')}`, {
      where,
      next: "Put the config.json of the model that the run started from in this one's place.",
    });
  }
  const [model_type, architecture] = attention_bias ? ['qwen2', 'Qwen2ForCausalLM'] : ['llama', 'LlamaForCausalLM'];
  return {
    architectures: [architecture],
    model_type,
    ...sizes,
    hidden_act: 'silu',
    max_position_embeddings: MADE_FOR_POSITIONS,
    ...endsOf(checkpoint),
  };
}

/** Rotary positions have no limit, but loaders want one. */
const MADE_FOR_POSITIONS = 32_768;

function endsOf(checkpoint: string): object {
  const file = join(checkpoint, GENERATION_FILE);
  return existsSync(file) ? (readJson(file) as object) : {};
}

function copyTokenizer(checkpoint: string, folder: string): void {
  const weights = [ADAPTER_CONFIG_FILE, ADAPTER_FILE, POLICY_FILE, CONFIG_FILE, GENERATION_FILE];
  const names = readdirSync(checkpoint).filter((name) => !ofTraining.has(name) && !weights.includes(name));
  for (const name of names) copyFileSync(join(checkpoint, name), join(folder, name));
}

/** Names of weights without their ending, and of the index of several files. */
interface ShardNames {
  readonly weights: string;
  readonly index: string;
}

const OF_TRANSFORMERS: ShardNames = { weights: 'model', index: INDEX_FILE };
const OF_DIFFUSERS: ShardNames = {
  weights: 'diffusion_pytorch_model',
  index: 'diffusion_pytorch_model.safetensors.index.json',
};

/** Writes tensors into one file, or into several of at most `shardBytes` with an index. */
function writeShards(
  folder: string,
  tensors: ReadonlyMap<string, LazyTensor>,
  dtype: WrittenDtype,
  shardBytes: number,
  names: ShardNames,
): void {
  const shards = [new Map<string, LazyTensor>()];
  let [filled, total] = [0, 0];
  for (const [name, tensor] of tensors) {
    const bytes = DTYPE_BYTES[dtype] * tensor.shape.reduce((product, size) => product * size, 1);
    if (filled > 0 && filled + bytes > shardBytes) {
      shards.push(new Map<string, LazyTensor>());
      filled = 0;
    }
    must(shards.at(-1), 'a shard').set(name, tensor);
    filled += bytes;
    total += bytes;
  }
  const padded = (number: number): string => String(number).padStart(5, '0');
  const nameOf = (shard: number): string =>
    `${names.weights}${shards.length === 1 ? '' : `-${padded(shard + 1)}-of-${padded(shards.length)}`}.safetensors`;
  shards.forEach((shard, index) => writeShard(join(folder, nameOf(index)), shard, dtype));
  if (shards.length === 1) return;
  const weightMap = shards.flatMap((shard, index) => [...shard.keys()].map((name) => [name, nameOf(index)] as const));
  const index = { metadata: { total_size: total }, weight_map: Object.fromEntries(weightMap) };
  writeFileSync(join(folder, names.index), `${JSON.stringify(index, null, 2)}\n`);
}

function writeShard(path: string, tensors: ReadonlyMap<string, LazyTensor>, dtype: WrittenDtype): void {
  const file = openSync(path, 'w');
  const write = (bytes: Uint8Array): void => {
    let done = 0;
    while (done < bytes.length) done += writeSync(file, bytes, done, Math.min(bytes.length - done, 2 ** 30));
  };
  try {
    write(safetensorsHeader(new Map([...tensors].map(([name, { shape }]) => [name, shape])), dtype, { format: 'pt' }));
    for (const [name, { read }] of tensors) {
      const { data } = read();
      if (dtype === 'F16' && data.some((value) => Math.abs(value) >= 65_520)) {
        throw new CheckpointError(`${name} has numbers beyond 65504, the largest of float16`, {
          where: path,
          next: 'Use --dtype bfloat16 or float32.',
        });
      }
      write(toStoredBytes(data, dtype));
    }
  } finally {
    closeSync(file);
  }
}

const id = z
  .union([z.int(), z.array(z.int()).transform(([first]) => first ?? null)])
  .nullish()
  .catch(null);
const ids = z.looseObject({ eos_token_id: id, pad_token_id: id }).catch({ eos_token_id: null, pad_token_id: null });
/** A vision model keeps the settings of its text model in a section of their own. */
const nested = z.looseObject({ text_config: ids }).catch({ text_config: { eos_token_id: null, pad_token_id: null } });
const words = z.object({
  added_tokens: z
    .array(z.object({ id: z.int(), content: z.string() }))
    .nullish()
    .catch(null),
  model: z
    .object({ vocab: z.record(z.string(), z.int()).nullish().catch(null) })
    .nullish()
    .catch(null),
});

/**
 * Adds a missing `eos_token` or `pad_token` to a folder's tokenizer_config.json: the token that its other files name, or
 * else the first one in generation_config.json or config.json. Without a padding token, the end token pads. Changes
 * nothing in a folder without tokenizer.json, or if no token is known. `settings` are the folders whose generation
 * settings apply, the most important first. Raises CheckpointError for files that cannot be read.
 */
export function completeTokenizerConfig(folder: string, settings: readonly string[]): void {
  const tokenizer = join(folder, TOKENIZER_FILE);
  if (!existsSync(tokenizer)) return;
  const parsed = readJson(tokenizer);
  const file = join(folder, TOKENIZER_CONFIG_FILE);
  // A class is missing only if the whole file is: without one, other programs guess it from the model.
  const own = existsSync(file)
    ? (readJson(file) as Readonly<Record<string, unknown>>)
    : { tokenizer_class: 'PreTrainedTokenizerFast' };
  const named = specialNames(folder, parsed);
  const stated = settings
    .flatMap((from) => [join(from, GENERATION_FILE), join(from, CONFIG_FILE)])
    .filter((path) => existsSync(path))
    .flatMap((path) => {
      const json = readJson(path);
      return [ids.parse(json), nested.parse(json).text_config];
    });
  const tokenOf = (key: 'eos_token_id' | 'pad_token_id'): string | undefined =>
    wordOf(parsed, stated.map((one) => one[key]).find((found) => typeof found === 'number') ?? null);
  const eos = named['eos_token'] ?? tokenOf('eos_token_id');
  const pad = named['pad_token'] ?? tokenOf('pad_token_id') ?? eos;
  const missing = Object.entries({ eos_token: eos, pad_token: pad }).filter(
    ([key, token]) => token !== undefined && (own[key] ?? null) === null,
  );
  if (missing.length === 0) return;
  writeFileSync(file, `${JSON.stringify({ ...own, ...Object.fromEntries(missing) }, null, 2)}\n`);
}

function wordOf(tokenizer: unknown, wanted: number | null): string | undefined {
  const { success, data } = words.safeParse(tokenizer);
  if (!success || wanted === null) return undefined;
  const added = data.added_tokens?.find((token) => token.id === wanted)?.content;
  return added ?? Object.entries(data.model?.vocab ?? {}).find(([, one]) => one === wanted)?.[0];
}
