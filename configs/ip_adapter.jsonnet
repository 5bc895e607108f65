// A flow-matching image model with an IP-Adapter paints words into masked images, and learns from OCR and a VLM judge. It has Calligrapher's
// values. lib/ip_adapter_tiny.libsonnet is the laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'ip_adapter',
  num_iterations: 400,
  // With one optimizer step every ratio is 1 and nothing is clipped. Calligrapher reads its KL flag and adds no KL loss.
  algorithm: { type: 'grpo', minibatches: 2, clip_range: 0.2, kl_coeff: 0 },
  optimizer: { learning_rate: 1e-4, per_device_batch_size: 8 },
  rollout: { episodes_per_iteration: 128, generations_per_sample: 8, num_steps: 50, guidance_scale: 3.5 },
  policy: { model_type: 'flux', train: 'adapter' },
  data: { dir: data_dir, train: [{ path: data_dir + '/self_bench/train' }], validation: [{ path: data_dir + '/self_bench/validation' }] },
  reward: {
    endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE'),
    mode: null,
    terms: [{ name: 'ocr_confidence', weight: 0.6 }, { name: 'align_quality', weight: 0.4 }],
  },
  validation: { every_n_iterations: 50, prompts: 128 },
}
