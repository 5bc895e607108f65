/**
 * The text encoder of Qwen-Image: the language model of Qwen2.5-VL. The transformer uses its hidden states of a fixed
 * template.
 */
import { join } from 'node:path';
import { CheckpointError } from '../../core/errors.js';
import type { StorageDtype } from '../../core/safetensors.js';
import { Lazy, frozenOptions } from '../../compute/onnx/frozen_graph.js';
import type { ModelFileOptions } from '../../compute/onnx/model_file.js';
import { CONFIG_FILE, readConfig, type Weights } from '../../models/files.js';
import { checkDecoder, openDecoder } from '../../models/networks/decoder.js';
import { FreeText } from '../../models/tokenizer/format.js';
import { openTokenizer } from '../../models/tokenizer/open.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { Reader } from '../policies/tokens/hidden_states.js';
import type { EncodedPrompt, PromptEncoder } from './word_encoder.js';

/** The template of diffusers' QwenImagePipeline, which drops the states of its first tokens. */
const TEMPLATE = [
  '<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects ',
  'and background:<|im_end|>\n<|im_start|>user\n',
];
const TEMPLATE_END = '<|im_end|>\n<|im_start|>assistant\n';
const DROPPED_TOKENS = 34;
/** Maximum number of tokens of the filled template. Longer prompts lose their last tokens, as in diffusers. */
const MAX_TOKENS = 1024 + DROPPED_TOKENS;
const MODEL_TYPE = 'qwen2_5_vl';

interface OpenedEncoder {
  readonly reader: Reader;
  readonly weights: Weights;
  dispose(): Promise<void>;
}

export class QwenTextEncoder implements PromptEncoder {
  readonly width: number;
  readonly pooledWidth = 0;
  readonly #tokenizer: Tokenizer;
  readonly #model: Lazy<OpenedEncoder>;

  /**
   * `folder` is a Qwen2.5-VL with its tokenizer, or the `text_encoder` of a Qwen-Image pipeline, whose tokenizer is in
   * the folder beside it. Weights are read on first use and stored as `held`. Raises CheckpointError for another model.
   */
  constructor(folder: string, options: ModelFileOptions = {}, held: StorageDtype = 'float32') {
    const { model_type: type } = readConfig<{ readonly model_type?: unknown }>(folder);
    if (type !== MODEL_TYPE) {
      throw new CheckpointError(
        `model_type ${JSON.stringify(type)} is not a supported text encoder; allowed: ${MODEL_TYPE}`,
        {
          where: join(folder, CONFIG_FILE),
          next: 'Name the whole folder of a FLUX, FLUX.2-klein or Stable Diffusion 3 pipeline, or the text_encoder folder of Qwen-Image.',
        },
      );
    }
    const { config } = checkDecoder(folder);
    this.width = config.hidden_size;
    this.#tokenizer = openTokenizer(folder);
    this.#model = new Lazy(() => {
      const { weights } = openDecoder(folder, 'words', held);
      // Only logits need the head.
      weights.delete('lm_head.weight');
      // One thread, because the last bits depend on the number of threads.
      const session = frozenOptions({ ...options, threads: 1 }, weights);
      const format = new FreeText(this.#tokenizer, new Set());
      const reader = new Reader({ config, format, weights }, { session, visionTower: null });
      return Promise.resolve({ reader, weights, dispose: () => reader.dispose() });
    });
  }

  async encode(prompt: string): Promise<EncodedPrompt> {
    const all = await this.#tokens(prompt);
    const { reader, weights } = await this.#model.get();
    const ids = all.slice(0, MAX_TOKENS);
    const [{ states }] = await reader.read([{ prompt: { ids }, answer: null, from: DROPPED_TOKENS }], weights);
    return { text: states, pooled: null, unread: all.length - ids.length };
  }

  async unread(prompt: string): Promise<number> {
    return Math.max(0, (await this.#tokens(prompt)).length - MAX_TOKENS);
  }

  #tokens(prompt: string): Promise<readonly number[]> {
    return Promise.resolve(this.#tokenizer.encode(TEMPLATE.join('') + prompt + TEMPLATE_END, { addSpecial: true }));
  }

  dispose(): Promise<void> {
    return this.#model.dispose();
  }
}
