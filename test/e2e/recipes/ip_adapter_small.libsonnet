// The smallest size of ip_adapter at which every part still works, merged over configs/lib/ip_adapter_tiny.libsonnet. Half of the reward comes from
// the server that the environment names.
{
  local paints = super.task == 'ip_adapter',
  local supervised = !paints || super.algorithm.type == 'sft',
  num_iterations: if supervised then 8 else 6,
  optimizer+: { per_device_batch_size: 8 },
  algorithm+: if supervised then { warmup_steps: 0, sft+: { batch_size: 8 } } else { drop_zero_spread: false },
  rollout+: { episodes_per_iteration: 16, generations_per_sample: 4, num_steps: 4, eval_num_steps: 5, chunk_groups: 2 },
  validation+: { every_n_iterations: if supervised then 8 else 3, prompts: 8 },
  checkpoint+: { save_every_n_iterations: if supervised then 8 else 2, keep_every_n_iterations: null },
  policy+: {
    init: if super.init == null then null else super.init { num_layers: 1, attention_head_dim: 12, num_attention_heads: 2 },
  },
  data+: { tiny+: { counts: { labelled: 16, train: 64, validation: 16 } } },
  reward: if supervised then { mode: 'jpeg_size' } else {
    mode: null,
    terms: [
      { name: 'image_similarity', to: 'truth', weight: 0.5 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
  },
}
