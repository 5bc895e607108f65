// edit_response so small that an iteration takes a moment, with pictures of a server that is told by words, and a reward that only looks at pixels;
// merged over configs/lib/edit_tiny.libsonnet.
{
  run_name: 'served',
  num_iterations: 4,
  policy+: {
    model: null,
    init: {
      hidden_size: 16,
      intermediate_size: 32,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      embedding_std: 0.5,
      vision: { depth: 1, hidden_size: 16, intermediate_size: 32, num_heads: 2, patch_size: 4 },
    },
    engine: { provider: 'cpu' },
  },
  optimizer+: { per_device_batch_size: 8, learning_rate: 0.02 },
  rollout+: { episodes_per_iteration: 16, generations_per_sample: 4, max_response_tokens: 6 },
  data+: { tiny+: { counts: { train: 4, prompts: 16, validation: 6, truth: 6 } } },
  environment: { type: 'images_api_text_prompt', base_url: std.extVar('APP__IMAGES'), served_model: 'stub-image', max_pixels: 1024 },
  reward: { endpoint: '', terms: [{ name: 'jpeg_size', weight: 1, max_kb: 3 }] },
  validation+: { every_n_iterations: null, prompts: 4 },
  checkpoint+: { save_every_n_iterations: 2 },
}
