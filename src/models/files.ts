/** The files of a model's folder: config.json, weights and tokenizer.json, as on the Hub. */
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, must } from '../core/errors.js';
import { requireFinite } from '../core/finite.js';
import { grouped } from '../core/grouped.js';
import {
  checkSafetensors,
  readSafetensors,
  readSafetensorsIndex,
  type FloatTensor,
  type StorageDtype,
  type StorageDtypeOf,
} from '../core/safetensors.js';
import { readTextFile } from '../core/text.js';

export const POLICY_FILE = 'policy.safetensors';
export const TOKENIZER_FILE = 'tokenizer.json';
export const CONFIG_FILE = 'config.json';
/** The description of a diffusers pipeline, whose models are in subfolders. */
export const PIPELINE_FILE = 'model_index.json';
export const GENERATION_FILE = 'generation_config.json';
/** The file that a checkpoint has in place of weights that are at a training server. */
export const SERVED_FILE = 'remote.json';

/** Weights as other programs save them: loading one can execute anything. */
const PICKLE = /^(?:pytorch_model.*\.bin|.*\.(?:pt|pth|ckpt))$/;
/** One file of weights, or the index of several, that diffusers saved as a variant, such as model.fp16.safetensors. */
const VARIANT = /^(model|diffusion_pytorch_model)(?:\.[^.-]+(\.safetensors)|(\.safetensors\.index)\.[^.-]+(\.json))$/;

/** A model's parameters by name. */
export type Weights = Map<string, FloatTensor>;

/** A file of a checkpoint: a text, or bytes, whole or in the order of their pieces. */
export type CheckpointContent = string | Uint8Array | readonly Uint8Array[];

/** The files of a checkpoint by their plain names. */
export type CheckpointFiles = Readonly<Record<string, CheckpointContent>>;

/** Diffusers' file names. */
export const DIFFUSERS_FILE = 'diffusion_pytorch_model.safetensors';
/** Alternative files with all weights of a model. The first existing one counts. */
export const WEIGHT_FILES = [POLICY_FILE, 'model.safetensors', DIFFUSERS_FILE];
/** The index that maps each tensor to its file. */
export const INDEX_FILE = 'model.safetensors.index.json';
/** Names of the index, including the one of diffusers. */
export const INDEX_FILES = [INDEX_FILE, 'diffusion_pytorch_model.safetensors.index.json'];

/** A pipeline's text encoder, and the folders beside it with the files that prepare its inputs. */
const TEXT_ENCODER = { folder: 'text_encoder', beside: ['processor', 'tokenizer'] } as const;

/**
 * The folder with the files of these names that belong to a model: its own, or one beside it if the model is the text encoder of a pipeline. Its own if
 * there are none.
 */
export function folderWith(folder: string, names: readonly string[]): string {
  const beside =
    basename(folder) === TEXT_ENCODER.folder ? TEXT_ENCODER.beside.map((part) => join(folder, '..', part)) : [];
  return [folder, ...beside].find((one) => names.some((name) => existsSync(join(one, name)))) ?? folder;
}

/** Whether a folder has files of weights, even of a format that cannot be read. */
export function hasWeights(folder: string): boolean {
  return existsSync(folder) && readdirSync(folder).some((name) => name.includes('.safetensors') || PICKLE.test(name));
}

/** Maps each tensor of a folder to its file. */
export type TensorFiles = ReadonlyMap<string, string>;

/** Maps each tensor of a folder to its file, which may not exist yet. Raises CheckpointError for a broken index. */
export function indexedTensors(folder: string): TensorFiles {
  const whole = WEIGHT_FILES.map((name) => join(folder, name)).find(existsSync);
  if (whole !== undefined) return tensorsOf(whole);
  const index = INDEX_FILES.map((name) => join(folder, name)).find(existsSync);
  const shards = index === undefined ? [] : Object.entries(readIndex(index));
  return new Map(shards.map(([name, shard]) => [name, join(folder, shard)]));
}

/** Raises CheckpointError for a folder without weights, with a broken index, or without a file that the index names. */
export function tensorFiles(folder: string): TensorFiles {
  const whole = WEIGHT_FILES.map((name) => join(folder, name)).find(existsSync);
  if (whole !== undefined) return tensorsOf(whole);
  const index = INDEX_FILES.map((name) => join(folder, name)).find(existsSync);
  if (index === undefined) {
    const names = existsSync(folder) ? readdirSync(folder).sort() : [];
    const pickles = names.filter((name) => PICKLE.test(name));
    const variants = names.filter((name) => VARIANT.test(name));
    const found = [
      ...(variants.length === 0 ? [] : [`${variants.join(', ')}, a variant under another name`]),
      ...(pickles.length === 0 ? [] : [`${pickles.join(', ')}, pickles, which are never loaded`]),
    ];
    throw new CheckpointError(
      `there are no weights; allowed: ${[...WEIGHT_FILES, ...INDEX_FILES].join(', ')}${found.length === 0 ? '' : `; found: ${found.join('; ')}`}`,
      {
        where: folder,
        next:
          variants.length === 0
            ? 'Name a folder in the Hugging Face layout with weights as safetensors.'
            : `Rename ${variants[0]} to ${variants[0].replace(VARIANT, '$1$2$3$4')}.`,
      },
    );
  }
  const shards = readIndex(index);
  const files = new Map<string, string>();
  const present = new Map<string, ReadonlySet<string>>();
  for (const [name, shard] of Object.entries(shards)) {
    const path = join(folder, shard);
    const isThere = (one: string): boolean => !one.includes('/') && existsSync(join(folder, one));
    if (!isThere(shard)) {
      const missing = [...new Set(Object.values(shards))].filter((one) => !isThere(one));
      throw new CheckpointError(`the index names files that are not there: ${missing.join(', ')}`, {
        where: index,
        next: 'Fetch the whole model.',
      });
    }
    const held = present.get(path) ?? new Set(readSafetensorsIndex(path).entries.keys());
    present.set(path, held);
    if (!held.has(name)) {
      throw new CheckpointError(`the index maps ${name} to ${shard}, which does not contain it`, { where: index });
    }
    files.set(name, path);
  }
  return files;
}

/** The names of the tensors in one file. Raises CheckpointError if it cannot be read. */
export function tensorsOf(file: string): TensorFiles {
  return new Map([...readSafetensorsIndex(file).entries.keys()].map((name) => [name, file]));
}

const indexSchema = z.object({ weight_map: z.record(z.string(), z.string()) });

/** The file of each tensor according to the index. Raises CheckpointError if the index cannot be read. */
export function readIndex(index: string): Readonly<Record<string, string>> {
  const parsed = indexSchema.safeParse(readJson(index));
  if (!parsed.success) throw new CheckpointError('the index names no files of tensors (weight_map)', { where: index });
  return parsed.data.weight_map;
}

/**
 * Reads all expected tensors as float32, or matrices as `HalfTensor`s if they are stored in float16, all of them or by
 * name. `stored` returns a tensor's name in its file. Raises CheckpointError naming the first tensor that is missing,
 * has another shape, or has a number that is not finite or beyond float16.
 */
export function readWeights(
  files: TensorFiles,
  expected: ReadonlyMap<string, readonly number[]>,
  stored: (name: string) => string = (name) => name,
  held: StorageDtype | StorageDtypeOf = 'float32',
): Weights {
  const weights: Weights = new Map([...expected.keys()].map((name) => [name, EMPTY]));
  const heldOf = typeof held === 'string' ? (): StorageDtype => held : held;
  for (const [file, all] of namesByFile(files, expected, stored)) {
    for (const [own, names] of grouped(all, heldOf)) {
      const read = readSafetensors(file, names.map(stored), { held: own });
      requireFinite(read, file);
      for (const name of names) {
        const tensor = must(read.get(stored(name)), name);
        requireShape(tensor.shape, must(expected.get(name), name), stored(name), file);
        weights.set(name, tensor);
      }
    }
  }
  return weights;
}

/** Checks the input of `readWeights` by the files' headers and sizes. Raises the same errors. */
export function checkWeights(
  files: TensorFiles,
  expected: ReadonlyMap<string, readonly number[]>,
  stored: (name: string) => string = (name) => name,
): void {
  for (const [file, names] of namesByFile(files, expected, stored)) {
    const shapes = checkSafetensors(file, names.map(stored));
    for (const name of names) {
      const shape = must(shapes.get(stored(name)), name);
      requireShape(shape, must(expected.get(name), name), stored(name), file);
    }
  }
}

/** Raises CheckpointError for unused tensors. */
export function rejectUnread(folder: string, files: TensorFiles, isKnown: (name: string) => boolean): void {
  const unread = [...files.keys()].filter((name) => !isKnown(name));
  if (unread.length === 0) return;
  const more = unread.length > 3 ? ` and ${unread.length - 3} more` : '';
  throw new CheckpointError(`unused tensors: ${unread.slice(0, 3).join(', ')}${more}`, {
    where: files.get(unread[0]) ?? folder,
    next: `They belong to another model than ${CONFIG_FILE} describes. Name a checkpoint of the described model.`,
  });
}

function namesByFile(
  files: TensorFiles,
  expected: ReadonlyMap<string, unknown>,
  stored: (name: string) => string,
): Map<string, string[]> {
  const byFile = new Map<string, string[]>();
  for (const name of expected.keys()) {
    const file = files.get(stored(name));
    if (file === undefined) {
      const [some = 'no weights'] = files.values();
      throw new CheckpointError(`tensor ${stored(name)} is not in the file`, { where: some });
    }
    byFile.set(file, [...(byFile.get(file) ?? []), name]);
  }
  return byFile;
}

function requireShape(found: readonly number[], wantedShape: readonly number[], name: string, where: string): void {
  if (found.join() === wantedShape.join()) return;
  throw new CheckpointError(
    `tensor ${name} has shape [${found.join(', ')}], but the config needs [${wantedShape.join(', ')}]`,
    { where },
  );
}

/** Keeps a tensor's place in the order of the architecture. */
const EMPTY: FloatTensor = { shape: [0], data: new Float32Array(0) };

/** The model's config.json. Raises CheckpointError if it is missing or cannot be read. */
export function readConfig<T>(folder: string): T {
  const where = join(folder, CONFIG_FILE);
  requireHere(folder);
  if (!existsSync(where)) {
    throw new CheckpointError(`there is no ${CONFIG_FILE}${hasWeights(folder) ? '' : ', and there are no weights'}`, {
      where: folder,
      next: existsSync(join(folder, PIPELINE_FILE))
        ? 'The folder is a whole diffusers pipeline: name one of its models, such as transformer or vae.'
        : 'Name a folder in the Hugging Face layout.',
    });
  }
  return readJson(where) as T;
}

/** Raises CheckpointError for a checkpoint whose weights exist only on a training server. */
export function requireHere(folder: string): void {
  if (!existsSync(join(folder, SERVED_FILE)) || existsSync(join(folder, 'adapter_config.json'))) return;
  throw new CheckpointError('its weights are at the training server, and the checkpoint has no copy of the adapter', {
    where: folder,
    next: `Use a checkpoint with weights: policy.trainer.download_adapter downloads them if the server provides them. ${SERVED_FILE} names the state on the server.`,
  });
}

/** Raises CheckpointError if the file cannot be read or is not JSON. */
export function readJson(path: string): unknown {
  try {
    return JSON.parse(readTextFile(path, CheckpointError)) as unknown;
  } catch (cause) {
    if (cause instanceof CheckpointError) throw cause;
    throw new CheckpointError(`cannot be read: ${(cause as Error).message}`, { where: path, cause });
  }
}
