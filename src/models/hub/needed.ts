/** Which files of a repository are fetched: what is read here, as safetensors or as an export to ONNX. Pickles, which can execute what they like, never are. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { EXPORTED, EXPORTED_FILES } from '../exported.js';
import { CONFIG_FILE, INDEX_FILE, readConfig, readIndex } from '../files.js';

/** What of a model is read: all of it, or its tokenizer alone. */
export type Need = 'model' | 'tokenizer';

const ADAPTER_CONFIG = 'adapter_config.json';
const ADAPTER_WEIGHTS = 'adapter_model.safetensors';
const WEIGHTS = 'model.safetensors';

/** Settings, tokenizers in all their forms, and chat templates. */
const description = /^(?:[^/]+\.(?:json|txt|jinja|model|tiktoken)|additional_chat_templates\/[^/]+\.jinja)$/;
/** Lists of weights in other forms. */
const otherIndex = /\.(?:bin|h5|msgpack|onnx)\.index\.json$/;
const pickles = /\.(?:bin|pt|pth|ckpt|pkl)$/;

/** The small files that say what a model is. */
export function descriptionFiles(paths: readonly string[]): string[] {
  return paths.filter((path) => description.test(path) && !otherIndex.test(path));
}

/**
 * The files with a model's weights, of which the folder holds the description. Raises CheckpointError where the repository has none that can be
 * read, or lacks one.
 */
export function weightFiles(folder: string, paths: readonly string[], name: string): string[] {
  const wanted = weightsIn(folder, (file) => paths.includes(file));
  const missing = wanted.filter((file) => !paths.includes(file));
  if (missing.length === 0) return wanted;
  const others = paths.filter((path) => pickles.test(path));
  const found =
    others.length === 0
      ? ''
      : `; found ${others.slice(0, 3).join(', ')}, which are pickles: these can execute code, and are never fetched`;
  throw new CheckpointError(`the repository has no ${missing.slice(0, 3).join(', ')}${found}`, {
    where: name,
    next: 'Name a revision that has safetensors, or a folder with the model saved again in Python: from_pretrained(…).save_pretrained(folder).',
  });
}

/** What a snapshot lacks to be used, as far as its own files tell. */
export function missingFiles(folder: string, need: Need): string[] {
  const has = (file: string): boolean => existsSync(join(folder, file));
  if (need === 'tokenizer') {
    return ['tokenizer.json', 'tokenizer.model', 'tokenizer_config.json'].some(has) ? [] : ['tokenizer.json'];
  }
  const description = has(ADAPTER_CONFIG) ? ADAPTER_CONFIG : CONFIG_FILE;
  return [description, ...weightsIn(folder, has)].filter((file) => !has(file));
}

/** An adapter's weights, an export's graphs, else the weights in one file, else those that the index names. */
function weightsIn(folder: string, has: (file: string) => boolean): string[] {
  if (has(ADAPTER_CONFIG)) return [ADAPTER_WEIGHTS];
  if (isExport(folder)) return Object.values(EXPORTED_FILES);
  if (has(WEIGHTS) || !has(INDEX_FILE)) return [WEIGHTS];
  return [...new Set(Object.values(readIndex(join(folder, INDEX_FILE))))].sort();
}

function isExport(folder: string): boolean {
  return existsSync(join(folder, CONFIG_FILE)) && readConfig<{ model_type?: unknown }>(folder).model_type === EXPORTED;
}
