/** Settings of video_actions on a few clips of the tiny world: the least that a whole task needs. */
import type { VideoActionsSettings } from '../../../src/recipes/video_actions/settings.js';
import { smallConfig } from '../small_config.js';

const init = {
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vision: { depth: 1, hidden_size: 16, intermediate_size: 16, num_heads: 2, patch_size: 4 },
};
const exactly = { min_pixels: 1024, max_pixels: 1024 };

export const { problemsOf, smallSettings } = smallConfig<VideoActionsSettings>({
  run_name: 'small',
  task: 'video_actions',
  seed: 5,
  num_iterations: 2,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 8 },
  policy: {
    init,
    model_context_size: 96,
    pixels: { image: exactly, video: exactly },
    engine: { provider: 'cpu', threads: 1 },
  },
  prompt: { chat: false },
  data: { train: [], validation: [], tiny: { counts: { labelled: 2, train: 4, validation: 3 } } },
  reward: { mode: 'format_accuracy' },
});
