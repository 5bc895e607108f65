/**
 * Which files of a repository are fetched: those that this program reads, as safetensors or as an export to ONNX. Pickles, which can execute
 * arbitrary code, are never fetched.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError } from '../../core/errors.js';
import { CONFIG_FILE, INDEX_FILES, PIPELINE_FILE, readIndex, readJson, WEIGHT_FILES } from '../files.js';
import { isPipeline, PART_FOLDERS, readPipeline, weightedParts } from '../pipeline.js';

/** Which part of a model is read: all of it, or only its tokenizer. */
export type Need = 'model' | 'tokenizer';

const ADAPTER_CONFIG = 'adapter_config.json';
const ADAPTER_WEIGHTS = 'adapter_model.safetensors';
/** The file that is reported missing if a repository has no weights at all. */
const WEIGHTS = 'model.safetensors';
/** The files of what scripts/export_flow_parts wrote, by the `model_type` of its config.json. */
const GRAPHS = {
  flow_text_encoder: ['model.onnx'],
} as const;
const exportedConfig = z.object({
  model_type: z.enum(Object.keys(GRAPHS) as (keyof typeof GRAPHS)[]),
  inputs: z.array(z.object({ tokenizer: z.string() })).default([]),
});

/** Settings, tokenizers in all their forms, chat templates, and the card, which states the licence. */
const description = /^(?:README\.md|[^/]+\.(?:json|txt|jinja|model|tiktoken)|additional_chat_templates\/[^/]+\.jinja)$/;
/** Lists of weights in other forms. */
const otherIndex = /\.(?:bin|h5|msgpack|onnx)\.index\.json$/;
const pickles = /\.(?:bin|pt|pth|ckpt|pkl)$/;
/** Files of a repository that are meant for people and for git. */
const aside = /(?:^|\/)\.|\.md$/;

/** The same of a part of a pipeline, whose folder is the first group. */
const partDescription = /^([^/]+)\/[^/]+\.(?:json|txt|model)$/;

/** The small files that describe a model, or the parts of a pipeline. */
export function descriptionFiles(paths: readonly string[]): string[] {
  const parts = paths.includes(PIPELINE_FILE) ? PART_FOLDERS : [];
  const isOfPart = (path: string): boolean => parts.includes(partDescription.exec(path)?.[1] ?? '');
  return paths.filter((path) => (description.test(path) || isOfPart(path)) && !otherIndex.test(path));
}

/**
 * The files with a model's weights; the folder holds the files that describe it. The files that show that the download is complete come last. ONNX
 * graphs refer to files with any name beside them, so such a model is fetched whole. Raises CheckpointError if the repository has no readable
 * weights, or lacks a file of them.
 */
export function weightFiles(folder: string, paths: readonly string[], name: string): string[] {
  const wanted = weightsIn(folder, (file) => paths.includes(file));
  const missing = wanted.filter((file) => !paths.includes(file));
  if (missing.length === 0) {
    if (exportedFiles(folder) === null) return wanted;
    const others = paths.filter((path) => !wanted.includes(path) && !pickles.test(path) && !aside.test(path));
    return [...others, ...wanted];
  }
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

/** The files that a snapshot lacks to be usable, as far as its own files tell. */
export function missingFiles(folder: string, need: Need): string[] {
  const has = (file: string): boolean => existsSync(join(folder, file));
  if (need === 'tokenizer') {
    return ['tokenizer.json', 'tokenizer.model', 'tokenizer_config.json'].some(has) ? [] : ['tokenizer.json'];
  }
  const description = [ADAPTER_CONFIG, PIPELINE_FILE].find(has) ?? CONFIG_FILE;
  return [description, ...weightsIn(folder, has)].filter((file) => !has(file));
}

/**
 * An adapter's weights, else those of a pipeline's parts, else the graphs of an exported part, else the weights in one file, else the files that the index names.
 */
function weightsIn(folder: string, has: (file: string) => boolean): string[] {
  if (has(ADAPTER_CONFIG)) return [ADAPTER_WEIGHTS];
  if (isPipeline(folder)) {
    return weightedParts(readPipeline(folder)).flatMap((part) =>
      weightsIn(join(folder, part), (file) => has(`${part}/${file}`)).map((file) => `${part}/${file}`),
    );
  }
  const exported = exportedFiles(folder);
  if (exported !== null) return exported;
  const [whole, index] = [WEIGHT_FILES.find(has), INDEX_FILES.find(has)];
  if (whole !== undefined || index === undefined) return [whole ?? WEIGHTS];
  return [...new Set(Object.values(readIndex(join(folder, index))))].sort();
}

/** The files that an exported part requires; null if the folder's config.json is missing or belongs to another kind of model. */
function exportedFiles(folder: string): string[] | null {
  const file = join(folder, CONFIG_FILE);
  const { success, data } = exportedConfig.safeParse(existsSync(file) ? readJson(file) : null);
  return success
    ? [...data.inputs.map(({ tokenizer }) => `${tokenizer}/tokenizer.json`), ...GRAPHS[data.model_type]]
    : null;
}
