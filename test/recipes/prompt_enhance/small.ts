/** Settings of prompt_enhance on captions of the tiny world: the least that a whole task needs. */
import type { PromptEnhanceSettings } from '../../../src/recipes/prompt_enhance/settings.js';
import { smallConfig } from '../small_config.js';

export const { problemsOf, smallSettings } = smallConfig<PromptEnhanceSettings>({
  run_name: 'small',
  task: 'prompt_enhance',
  seed: 5,
  num_iterations: 2,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4 },
  policy: {
    init: {
      hidden_size: 16,
      intermediate_size: 24,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 1,
    },
    model_context_size: 64,
    engine: { provider: 'cpu', threads: 1 },
  },
  prompt: { chat: false, system: null },
  data: { train: [], validation: [], tiny: {} },
  environment: { type: 'model', model: 'painter', width: 16, height: 16, engine: { provider: 'cpu', threads: 1 } },
  reward: { terms: [{ name: 'clip', weight: 1, model: 'clip' }] },
});
