/** Settings of text_answers for a folder of rows: the least that a whole task needs. */
import type { TextAnswersSettings } from '../../../src/recipes/text_answers/settings.js';
import { smallConfig } from '../small_config.js';

const init = {
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
};

export const { problemsOf, smallSettings } = smallConfig<TextAnswersSettings>({
  run_name: 'small',
  task: 'text_answers',
  seed: 5,
  num_iterations: 2,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 8 },
  policy: { init, model_context_size: 64, engine: { provider: 'cpu', threads: 1 } },
  data: { train: [], validation: [], tiny: {} },
  reward: { mode: 'word_overlap' },
});
