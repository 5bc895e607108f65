/**
 * Selects the files of a repository to download: the safetensors that this program reads and the small files that describe them. Pickles can execute
 * arbitrary code and are never downloaded.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import { CONFIG_FILE, INDEX_FILES, PIPELINE_FILE, readIndex, WEIGHT_FILES } from '../files.js';
import { isPipeline, PART_FOLDERS, readPipeline, weightedParts } from '../pipeline.js';

/** The part of a model that is read: all of it, or only its tokenizer. */
export type Need = 'model' | 'tokenizer';

const ADAPTER_CONFIG = 'adapter_config.json';
const ADAPTER_WEIGHTS = 'adapter_model.safetensors';
const DIFFUSERS_LORA = 'pytorch_lora_weights.safetensors';
/** The file that is reported missing if a repository has no weights at all. */
const WEIGHTS = 'model.safetensors';

/** Settings, tokenizers in all their forms, chat templates, and the card, which states the license. */
const description = /^(?:README\.md|[^/]+\.(?:json|txt|jinja|model|tiktoken)|additional_chat_templates\/[^/]+\.jinja)$/;
/** Lists of weights in other forms. */
const otherIndex = /\.(?:bin|h5|msgpack|onnx)\.index\.json$/;
const pickles = /\.(?:bin|pt|pth|ckpt|pkl)$/;

/** Descriptions in a pipeline's part. The first group is the part's folder. */
const partDescription = /^([^/]+)\/[^/]+\.(?:json|txt|jinja|model)$/;

/** The small files that describe a model, or the parts of a pipeline. */
export function descriptionFiles(paths: readonly string[]): string[] {
  const parts = paths.includes(PIPELINE_FILE) ? PART_FOLDERS : [];
  const isOfPart = (path: string): boolean => parts.includes(partDescription.exec(path)?.[1] ?? '');
  return paths.filter((path) => (description.test(path) || isOfPart(path)) && !otherIndex.test(path));
}

/**
 * The files with a model's weights. `folder` already has the files that describe it. Raises CheckpointError if the
 * repository has no readable weights or lacks one of their files.
 */
export function weightFiles(folder: string, paths: readonly string[], name: string): string[] {
  const wanted = weightsIn(folder, (file) => paths.includes(file));
  const missing = wanted.filter((file) => !paths.includes(file));
  if (missing.length === 0) return wanted;
  const others = paths.filter((path) => pickles.test(path));
  const found =
    others.length === 0
      ? ''
      : `; found ${others.slice(0, 3).join(', ')}, which are pickles: these can execute code, and are never downloaded`;
  throw new CheckpointError(`the repository has no ${missing.slice(0, 3).join(', ')}${found}`, {
    where: name,
    next: 'Name a revision that has safetensors, or a folder with the model saved again in Python: from_pretrained(…).save_pretrained(folder).',
  });
}

/** The files that a snapshot lacks to be usable, according to its own files. */
export function missingFiles(folder: string, need: Need): string[] {
  const has = (file: string): boolean => existsSync(join(folder, file));
  if (need === 'tokenizer') {
    return ['tokenizer.json', 'tokenizer.model', 'tokenizer_config.json'].some(has) ? [] : ['tokenizer.json'];
  }
  const description = [ADAPTER_CONFIG, PIPELINE_FILE].find(has) ?? CONFIG_FILE;
  return [description, ...weightsIn(folder, has)].filter((file) => !has(file));
}

/**
 * An adapter's weights, or those of a pipeline's parts, or the weights in one file, or the files that the index names.
 */
function weightsIn(folder: string, has: (file: string) => boolean): string[] {
  if (has(ADAPTER_CONFIG)) return [[DIFFUSERS_LORA, ADAPTER_WEIGHTS].find(has) ?? ADAPTER_WEIGHTS];
  if (isPipeline(folder)) {
    return weightedParts(readPipeline(folder)).flatMap((part) =>
      weightsIn(join(folder, part), (file) => has(`${part}/${file}`)).map((file) => `${part}/${file}`),
    );
  }
  const [whole, index] = [WEIGHT_FILES.find(has), INDEX_FILES.find(has)];
  if (whole !== undefined || index === undefined) return [whole ?? WEIGHTS];
  return [...new Set(Object.values(readIndex(join(folder, index))))].sort();
}
