// The smallest size of video_actions at which every part still works, merged over configs/lib/video_tiny.libsonnet. Half of the reward comes
// from the server that the environment names.
{
  local supervised = super.algorithm.type == 'sft',
  num_iterations: if supervised then 8 else 6,
  optimizer+: { per_device_batch_size: 8 },
  algorithm+: if supervised then { warmup_steps: 0, sft+: { batch_size: 8 } } else {},
  rollout+: { episodes_per_iteration: 16, generations_per_sample: 4, max_response_tokens: 12, chunk_groups: 2 },
  validation+: { every_n_iterations: if supervised then 8 else 3, prompts: 6 },
  checkpoint+: { save_every_n_iterations: if supervised then 8 else 2 },
  policy+: {
    init: if super.init == null then null else super.init {
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      vision+: { hidden_size: 16, intermediate_size: 32, num_heads: 2 },
    },
  },
  data+: { tiny+: { counts: { described: 2, labelled: 8, train: 16, validation: 6 } } },
  reward: if supervised then { mode: 'format_accuracy' } else {
    terms: [
      { name: 'format_accuracy', weight: 0.5 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
  },
}
