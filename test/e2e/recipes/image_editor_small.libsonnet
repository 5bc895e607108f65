// The smallest size of image_editor at which every part still works, merged over configs/lib/image_editor_tiny.libsonnet. It learns by DiffusionNFT
// from the averaged weights. Half of the reward comes from the server that the environment names.
{
  local supervised = super.algorithm.type == 'sft',
  num_iterations: if supervised then 8 else 6,
  optimizer+: { per_device_batch_size: 8 } + (if supervised then {} else { ema_decay: 0.9 }),
  algorithm+: if supervised
  then { warmup_steps: 0, sft+: { batch_size: 8 } }
  else { drop_zero_spread: false, surrogate: 'nft', clip_range: null, nft: { levels: 2, sampled_by: 'average' } },
  rollout+: {
    episodes_per_iteration: 16,
    generations_per_sample: 4,
    num_steps: 4,
    eval_num_steps: 5,
    chunk_groups: 2,
    noise_level: 0,
    same_latent: false,
    sde_window: null,
  },
  validation+: { every_n_iterations: if supervised then 8 else 3, prompts: 8 },
  checkpoint+: { save_every_n_iterations: if supervised then 8 else 2, keep_every_n_iterations: null },
  policy+: {
    init: if super.init == null then null else super.init { num_layers: 1, attention_head_dim: 12, num_attention_heads: 2 },
  },
  data+: { tiny+: { counts: { train: 16, prompts: 64, validation: 16, truth: 16 } } },
  reward: if supervised then { mode: 'jpeg_size' } else {
    mode: null,
    terms: [
      { name: 'image_similarity', to: 'source', weight: 0.5 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
  },
}
