// Over enhance_served: what the contract of recipes asks of a config. Half of the reward comes from the server that the environment names.
{
  num_iterations: 6,
  rollout+: { chunk_groups: 2 },
  validation+: { every_n_iterations: 3, prompts: 8 },
  reward: {
    terms: [
      { name: 'jpeg_size', weight: 0.5, max_kb: 3 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
  },
}
