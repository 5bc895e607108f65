/** A tiny world on disk with a random image tokenizer, and settings for it: the least that a whole task needs. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { validate } from '../../../src/config/validate.js';
import type { ImageEditSettings } from '../../../src/recipes/image_edit_tokens/settings.js';
import { encodeSafetensors } from '../../../src/core/safetensors.js';
import { TrainedVisionTokenizer } from '../../../src/train/environments/trained_vision_tokens.js';
import { CODEBOOK, initImageTokenizer, type ImageTokenizerConfig } from '../../../src/compute/nets/image_tokenizer.js';
import { jointVocabularyJson, SPECIAL } from '../../../src/train/policies/tokens/emu3.js';
import { editData, tinyDatalist } from '../../../src/data/tiny/dataset.js';
import { tinyVocabulary } from '../../../src/data/tiny/edits.js';
import { editSettings } from '../../config/trained.js';

/** Judges take no images smaller than 28 pixels. */
const geometry = { columns: 3, rows: 3, cell: 10 };

export const smallTokenizerConfig: ImageTokenizerConfig = {
  codebook_size: 16,
  patch: 10,
  hidden: 8,
  code_dim: 4,
  commitment_weight: 0.25,
};

export interface SmallWorld {
  /** The config as a person would write it. */
  readonly config: Record<string, Record<string, unknown>>;
}

/** Makes the world under `root`. Images have 3 x 3 codes, so that an answer has 19 tokens where the prompt opened it. */
export async function makeSmallWorld(root: string): Promise<SmallWorld> {
  const vq = join(root, 'vq');
  mkdirSync(vq, { recursive: true });
  const weights = initImageTokenizer(smallTokenizerConfig, 3);
  // Encoded patches lie close to each other; so must the codes, for edits to change them.
  const codebook = weights.get(CODEBOOK)!.data;
  codebook.forEach((x, i) => (codebook[i] = 0.3 * x));
  writeFileSync(join(vq, 'config.json'), JSON.stringify(smallTokenizerConfig));
  writeFileSync(join(vq, 'policy.safetensors'), encodeSafetensors(weights));
  writeFileSync(join(vq, 'tokenizer.json'), jointVocabularyJson(tinyVocabulary(geometry), 16));
  const tokenizer = new TrainedVisionTokenizer(smallTokenizerConfig, weights, { threads: 1 });
  const data = join(root, 'tiny');
  await editData(tokenizer).makeIn(data, { geometry, sizes: { train: 8, prompts: 12, validation: 5, truth: 2 } });
  await tokenizer.dispose();
  const engine = { provider: 'cpu', threads: 1 };
  return {
    config: {
      algorithm: { type: 'grpo', kl_coeff: 0.05 },
      optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
      rollout: { episodes_per_iteration: 12, generations_per_sample: 4, max_response_tokens: 24 },
      policy: {
        model: null,
        init: {
          hidden_size: 16,
          intermediate_size: 24,
          num_hidden_layers: 1,
          num_attention_heads: 2,
          num_key_value_heads: 1,
          initializer_range: 0.2,
          embedding_std: 0.5,
        },
        tokenizer: vq,
        model_context_size: 128,
        assistant_prefill: SPECIAL.imageStart,
        chat_words: true,
        image_header: 'forced',
        end_after_image: false,
        engine,
      },
      data: {
        train: [{ path: tinyDatalist(data, 's', 'prompts') }],
        validation: [{ path: tinyDatalist(data, 's', 'validation') }],
      },
      environment: { model: vq, engine },
      reward: { endpoint: 'embedded', model: 'editrl-rule-judge' },
      validation: { prompts: 4 },
    },
  };
}

/** The settings of the world's config with some of its sections changed. */
export function smallSettings(
  world: SmallWorld,
  changes: Readonly<Record<string, Record<string, unknown>>> = {},
): ImageEditSettings {
  const sections = Object.entries(world.config).map(([name, fields]) => [name, { ...fields, ...changes[name] }]);
  const validated = validate({
    run_name: 'small',
    task: 'image_edit_tokens',
    seed: 5,
    num_iterations: 4,
    ...(Object.fromEntries(sections) as object),
  });
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return editSettings(validated.settings);
}
