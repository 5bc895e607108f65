/** Opens a decoder from its folder, written by this program or in the Hugging Face layout. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError, GraphError, must } from '../../core/errors.js';
import { areEqualTensors, readSafetensorsIndex, type StorageDtype } from '../../core/safetensors.js';
import {
  checkWeights,
  CONFIG_FILE,
  indexedTensors,
  readConfig,
  readWeights,
  rejectUnread,
  tensorFiles,
  type TensorFiles,
  type Weights,
} from '../files.js';
import { readArchitecture, type Architecture, type ReadPart } from '../../compute/nets/decoder/architectures.js';
import type { ModuleNames } from '../../compute/nets/lora.js';
import { CONNECTOR, VISUAL } from '../../compute/nets/vision/config.js';
import { checkDecoderConfig, decoderParameters, type DecoderConfig } from '../../compute/nets/decoder/config.js';

export interface LoadedDecoder extends Architecture {
  readonly weights: Weights;
}

/**
 * Raises CheckpointError for a folder without config or weights, an unsupported architecture, sizes that do not fit
 * together, the first tensor that is missing or has another shape, and tensors that the architecture does not use. Also
 * raises the errors of `readWeights` for weights that cannot be stored in the requested precision.
 */
export function openDecoder(folder: string, part: ReadPart = 'words', held: StorageDtype = 'float32'): LoadedDecoder {
  const { config, contextSize, files, expected, stored } = findDecoder(folder, part);
  return { config, contextSize, weights: readWeights(files, expected, stored, held) };
}

/** Checks the input of `openDecoder` without reading its weights. Raises the same errors. */
export function checkDecoder(folder: string, part: ReadPart = 'words'): Architecture {
  const { config, contextSize, files, expected, stored } = findDecoder(folder, part);
  checkWeights(files, expected, stored);
  return { config, contextSize };
}

/**
 * The problem of a folder's config.json that does not describe its weights. Null without one. Raises the errors of `checkDecoder`.
 */
export function remarkOnHead(folder: string): string | null {
  const { config, tiedByConfig } = findDecoder(folder, 'words');
  if (config.tie_word_embeddings === tiedByConfig) return null;
  return `${join(folder, CONFIG_FILE)} has tie_word_embeddings: true, but lm_head.weight differs from the embeddings: editrl uses lm_head.weight. Set tie_word_embeddings to false for programs that follow it.`;
}

interface FoundDecoder extends DescribedDecoder {
  readonly files: TensorFiles;
  /** Shapes by the names of the architecture. */
  readonly expected: ReadonlyMap<string, readonly number[]>;
  /** From such a name to that in the files. */
  readonly stored: (name: string) => string;
}

function findDecoder(folder: string, part: ReadPart): FoundDecoder {
  const described = describe(folder, part);
  const { config } = described;
  requireSizes(config, join(folder, CONFIG_FILE));
  const files = tensorFiles(folder);
  const stored = storedNames(files, folder);
  if (!config.tie_word_embeddings && !files.has(stored(HEAD))) {
    throw new CheckpointError('the weights have no lm_head.weight, but tie_word_embeddings is false', {
      where: folder,
      next: `If the output head shares the embeddings, write in ${CONFIG_FILE}: "tie_word_embeddings": true.`,
    });
  }
  const expected = new Map([...decoderParameters(config)].map(([name, { shape }]) => [name, shape]));
  const known = new Set([HEAD, ...expected.keys()].map(stored));
  const ofOtherPart = [...IMAGE_TOKENIZERS, ...(part === 'words' ? visionPrefixes(stored) : [])];
  rejectUnread(
    folder,
    files,
    (name) => known.has(name) || WITHOUT_EFFECT.test(name) || ofOtherPart.some((prefix) => name.startsWith(prefix)),
  );
  return { ...described, files, expected, stored };
}

const HEAD = 'lm_head.weight';
/** Prefixes of the vision encoders and connectors of Gemma 3 and Mistral 3, which have no name of their own here. */
const VISION_PARTS = ['vision_tower.', 'multi_modal_projector.'];
/** Prefixes of vision encoders and connectors in files. */
const visionPrefixes = (stored: ModuleNames): string[] => [VISUAL, CONNECTOR, ...VISION_PARTS].map(stored);
/** Prefixes of Emu3's image tokenizer next to its text model. */
const IMAGE_TOKENIZERS = ['vqmodel.', 'model.vqmodel.'];
/** Tables that older files store although the config determines them. They are ignored. */
const WITHOUT_EFFECT = /\.(?:rotary_emb\.inv_freq|embeddings\.position_ids)$/;

/**
 * The vision encoder and connector of a model that is read for text alone, in float32 and by the names of checkpoints. Empty for a text
 * model. Raises CheckpointError for tensors that cannot be read.
 */
export function visionWeights(folder: string): Weights {
  const files = tensorFiles(folder);
  const stored = storedNames(files, folder);
  const names = [VISUAL, CONNECTOR, ...VISION_PARTS].flatMap((own) =>
    [...files.keys()]
      .filter((name) => name.startsWith(stored(own)) && !WITHOUT_EFFECT.test(name))
      .map((name) => [`${own}${name.slice(stored(own).length)}`, name] as const),
  );
  const expected = new Map(
    names.map(([own, name]) => {
      const { entries } = readSafetensorsIndex(must(files.get(name), name));
      return [own, must(entries.get(name), name).shape] as const;
    }),
  );
  return readWeights(files, expected, stored);
}

function requireSizes(config: DecoderConfig, where: string): void {
  try {
    checkDecoderConfig(config);
  } catch (error) {
    throw error instanceof GraphError ? new CheckpointError(error.message, { where, cause: error }) : error;
  }
}

/**
 * The config of a folder's decoder, without its weights. As in transformers, an output head in the files that differs
 * from the embeddings takes precedence over config.json. Raises the errors of `openDecoder`.
 */
export function describeDecoder(folder: string, part: ReadPart = 'words'): Architecture {
  const { config, contextSize } = describe(folder, part);
  return { config, contextSize };
}

interface DescribedDecoder extends Architecture {
  /** The config in config.json alone. */
  readonly tiedByConfig: boolean;
}

function describe(folder: string, part: ReadPart): DescribedDecoder {
  const json = readConfig<Record<string, unknown>>(folder);
  // This program's own checkpoints hold the decoder's settings unchanged.
  const read =
    !('model_type' in json) && 'vocab_size' in json
      ? { config: json as unknown as DecoderConfig, contextSize: null }
      : readArchitecture(json, join(folder, CONFIG_FILE), part);
  const { tie_word_embeddings: tiedByConfig } = read.config;
  const tie_word_embeddings = tiedByConfig && !hasOwnHead(folder);
  return { ...read, config: { ...read.config, tie_word_embeddings }, tiedByConfig };
}

/** Whether a folder has an output head that differs from its embeddings. False if they are not there yet. */
function hasOwnHead(folder: string): boolean {
  const files = indexedTensors(folder);
  if (files.size === 0) return false;
  const stored = storedNames(files, folder);
  const places = [HEAD, 'model.embed_tokens.weight'].flatMap((own) => {
    const name = stored(own);
    const path = files.get(name);
    return path === undefined || !existsSync(path) ? [] : [{ name, path }];
  });
  if (places.length < 2) return false;
  const stats = places.map(({ path }) => statSync(path));
  const key = JSON.stringify([places, stats.map(({ mtimeMs, size }) => [mtimeMs, size])]);
  const found = ownHeads.get(key) ?? !areEqualTensors(places[0], places[1]);
  ownHeads.set(key, found);
  return found;
}

/** Results of comparisons, which read both tensors: a folder is described several times before it is opened. */
const ownHeads = new Map<string, boolean>();

/** Prefixes of tensor names here and in files of vision models: of the text model, of the head, and of the vision encoder. */
const prefixes: readonly {
  readonly model: string;
  readonly head: string;
  readonly visual: string;
  /** Names in place of `visual.` and of `visual.connector.`. Absent: the same names. */
  readonly encoder?: string;
  readonly connector?: string;
}[] = [
  { model: 'model.', head: '', visual: '' },
  { model: 'model.language_model.', head: '', visual: 'model.' },
  { model: 'language_model.model.', head: 'language_model.', visual: '' },
  { model: 'text_model.model.', head: 'text_model.', visual: '' },
  // SmolVLM, whose connector is beside the encoder.
  { model: 'model.text_model.', head: '', visual: 'model.', encoder: 'vision_model.', connector: 'connector.' },
];

type Prefix = (typeof prefixes)[number];

const nameUnder =
  ({ model, head, visual, encoder = VISUAL, connector = CONNECTOR }: Prefix): ModuleNames =>
  (name) => {
    if (name.startsWith(CONNECTOR)) return `${visual}${connector}${name.slice(CONNECTOR.length)}`;
    if (name.startsWith(VISUAL)) return `${visual}${encoder}${name.slice(VISUAL.length)}`;
    if (VISION_PARTS.some((part) => name.startsWith(part))) return `${visual}${name}`;
    return name.startsWith('model.') ? `${model}${name.slice('model.'.length)}` : `${head}${name}`;
  };

/**
 * The names that versions of transformers give to layers and parameters: of a text model, of a vision model since 4.52,
 * and others.
 */
export const namings = prefixes.map(nameUnder) as [ModuleNames, ModuleNames, ...ModuleNames[]];

/** The names in transformers' SmolVLM. */
export const smolvlmNames: ModuleNames = must(namings.at(-1), 'the names of SmolVLM');

/** From a parameter's name to that in the files. */
export function storedNames(files: Pick<TensorFiles, 'has'>, folder: string): ModuleNames {
  const found = prefixes.find(({ model }) => files.has(`${model}embed_tokens.weight`));
  if (found !== undefined) return nameUnder(found);
  const allowed = prefixes.map(({ model }) => `${model}embed_tokens.weight`).join(', ');
  throw new CheckpointError(`the weights have no embeddings; allowed names: ${allowed}`, { where: folder });
}
