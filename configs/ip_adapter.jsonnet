// A flow-matching image model with an IP-Adapter paints words into masked pictures, and learns from OCR and a VLM's judgement.
local data_dir = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'ip_adapter',
  num_iterations: 400,
  // With one step no ratio would leave 1, and nothing be clipped.
  algorithm: { type: 'grpo', minibatches: 2 },
  optimizer: { learning_rate: 3e-4, per_device_batch_size: 8 },
  rollout: { episodes_per_iteration: 128, generations_per_sample: 8 },
  policy: { model_type: 'flux', train: 'adapter' },
  data: { dir: data_dir, train: [{ path: data_dir + '/self_bench/train' }], validation: [{ path: data_dir + '/self_bench/validation' }] },
  reward: {
    endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE'),
    mode: null,
    terms: [{ name: 'ocr', weight: 0.5 }, { name: 'align_quality', weight: 0.5 }],
  },
  validation: { every_n_iterations: 50, prompts: 128 },
}
