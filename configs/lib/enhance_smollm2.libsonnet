// SmolLM2-135M-Instruct with LoRA as the policy of prompt_enhance. `scripts/fetch_smollm2 data/smollm2` makes its folder. The image model and CLIP stay
// those of the tiny world.
(import 'smollm2.libsonnet') + {
  num_iterations: 60,
  optimizer: { learning_rate: 2e-4, per_device_batch_size: 16 },
  rollout: { episodes_per_iteration: 64, generations_per_sample: 8, max_response_tokens: 24 },
  policy+: { model_context_size: 512 },
  prompt+: { chat: true, template: null },
  reaches_parents: false,
}
