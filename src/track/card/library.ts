/** Which Python library loads the files, and with which class. */
import { hasOwnSettings } from '../../nets/flow/config.js';
import type { CardContent } from './content.js';

export type Library = 'peft' | 'transformers' | 'diffusers' | 'editrl';

export interface Loader {
  readonly library: Library;
  /** The class of the model, or of the one below an adapter, and the library that has it; null if no other program loads it. */
  readonly model: { readonly of: 'transformers' | 'diffusers'; readonly name: string } | null;
}

type Files = Pick<CardContent, 'format' | 'config' | 'adapter'>;

/**
 * A LoRA adapter is loaded by PEFT, whole weights by transformers, or by diffusers where config.json names a class of it. An IP-Adapter, an image
 * tokenizer, and a flow transformer whose config.json says more than diffusers' class computes, are loaded by this program alone.
 */
export function loaderOf({ format, config, adapter }: Files): Loader {
  const alone: Loader = { library: 'editrl', model: null };
  const className = config?.['_class_name'];
  const ofDiffusers = typeof className === 'string' ? ({ of: 'diffusers', name: className } as const) : null;
  if (adapter !== null) {
    if (adapter['peft_type'] === 'IP_ADAPTER') return alone;
    const ofTransformers = { of: 'transformers', name: autoClass(config ?? {}) } as const;
    const isLanguageModel = adapter['task_type'] === 'CAUSAL_LM';
    return { library: 'peft', model: ofDiffusers ?? (isLanguageModel ? ofTransformers : null) };
  }
  if (format === 'merged') {
    return { library: 'transformers', model: { of: 'transformers', name: autoClass(config ?? {}) } };
  }
  return ofDiffusers === null || hasOwnSettings(config ?? {}) ? alone : { library: 'diffusers', model: ofDiffusers };
}

/** The class of transformers that reads a config.json. */
function autoClass(config: Readonly<Record<string, unknown>>): string {
  if (config['model_type'] === 'clip') return 'AutoModel';
  return 'vision_config' in config ? 'AutoModelForImageTextToText' : 'AutoModelForCausalLM';
}
