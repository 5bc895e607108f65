// GRPO as EARL does it.
(import 'earl.libsonnet') + {
  kind:: 'rl',
  num_iterations: 2000,
  algorithm: { type: 'grpo', kl_coeff: 0.0003 },
  optimizer: { learning_rate: 3e-6, per_device_batch_size: if $.think then 4 else 8, gradient_checkpointing: true },
  track: {
    log_episodes_every_n_iterations: 5,
    push_to_hub: { every_n_iterations: 100, repo_id: 'imged_rl__' + $.run_name },
  },
}
