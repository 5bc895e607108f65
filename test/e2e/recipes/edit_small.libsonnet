// The smallest size of edit_response at which every part still works, merged over configs/lib/edit_tiny.libsonnet. Half of the reward comes from the
// server that the environment names.
{
  local writes = super.task == 'edit_response',
  local supervised = super.algorithm.type == 'sft',
  num_iterations: if supervised then 8 else 6,
  optimizer+: { per_device_batch_size: 8 },
  algorithm+: if supervised then { warmup_steps: 0, sft+: { batch_size: 8 } } else {},
  rollout+: if writes
  then { episodes_per_iteration: 16, generations_per_sample: 4, max_response_tokens: 12, chunk_groups: 2 }
  else { num_steps: 2, eval_num_steps: 2 },
  validation+: { every_n_iterations: if supervised then 8 else 3, prompts: 6 },
  checkpoint+: { save_every_n_iterations: if supervised then 8 else 2, keep_every_n_iterations: null },
  policy+: {
    init: if !writes then super.init { num_layers: 1, attention_head_dim: 12, num_attention_heads: 2 } else if supervised then {
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      vision: { depth: 1, hidden_size: 16, intermediate_size: 32, num_heads: 2, patch_size: 4 },
    } else null,
  },
  environment: if !writes
  then super.environment
  else if supervised
  then null
  else super.environment { num_steps: 2, pictures_at_once: 8 },
  data+: { tiny+: { counts: { train: 8, prompts: 16, validation: 6, truth: 12 } } },
  reward: if supervised then { endpoint: '', mode: null, terms: [{ name: 'jpeg_size', weight: 1 }] } else {
    terms: [
      { name: 'jpeg_size', weight: 0.5 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
  },
}
