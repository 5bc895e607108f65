// The toy recipe. One half of its reward is computed in the run, the other comes from the reward server that the environment names.
{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'toy_words',
  num_iterations: 6,
  algorithm: { type: 'grpo', kl_coeff: 0.01 },
  optimizer: { learning_rate: 1e-2, per_device_batch_size: 8 },
  rollout: { episodes_per_iteration: 16, generations_per_sample: 4, max_response_tokens: 12, chunk_groups: 2, threads: 1 },
  validation: { every_n_iterations: 3, prompts: 8 },
  checkpoint: { save_every_n_iterations: 2, keep_every_n_iterations: null },
  policy: {
    init: {
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      embedding_std: 0.5,
    },
    engine: { provider: 'cpu' },
  },
  reward: {
    terms: [
      { name: 'format_accuracy', weight: 0.5 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
    zero_if_unfinished: false,
  },
}
