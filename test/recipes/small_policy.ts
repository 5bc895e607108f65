/** The smallest policies of random weights and settings that all recipes of tokens share. */
export const smallDecoder = {
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
};

export const smallSeeing = {
  ...smallDecoder,
  vision: { depth: 1, hidden_size: 16, intermediate_size: 16, num_heads: 2, patch_size: 4 },
};

/** The size of every image. */
export const exactly = { min_pixels: 1024, max_pixels: 1024 };

export const smallRun = {
  run_name: 'small',
  seed: 5,
  num_iterations: 2,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 8 },
};
