// SmolLM2-135M-Instruct with LoRA as the policy of prompt_enhance, from a short supervised start. `scripts/fetch_smollm2 data/smollm2` makes its
// folder. The image model and CLIP stay those of the tiny world.
local data_dir = std.extVar('APP__DATA_DIR');

{
  local supervised = super.algorithm.type == 'sft',
  num_iterations: if supervised then 12 else 60,
  optimizer: if supervised
  then { learning_rate: 1e-3, per_device_batch_size: 16 }
  else { learning_rate: 5e-4, per_device_batch_size: 16 },
  // Few at once: a run gives a sign of life after each, however busy the machine is.
  rollout: { episodes_per_iteration: 64, generations_per_sample: 8, max_response_tokens: 24, temperature: 1, chunk_groups: 2, packed_weights: 'all' },
  policy: {
    model: if supervised
    then data_dir + '/smollm2'
    else { run: 'enhance_smollm2_start', config: 'enhance_smollm2_start.jsonnet' },
    lora: { rank: 16, alpha: 32, targets: 'all-linear' },
    model_context_size: 256,
    engine: { provider: 'cpu' },
  },
  prompt: { system: 'Rewrite the caption in plain words.' },
  validation+: { every_n_iterations: 20 },
  // Hidden, so that the start can be written as a config over it.
  reaches_parents:: false,
}
