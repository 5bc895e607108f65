// A vision-language model lists the actions in a video, `<think>…</think> <answer>(1) … (2) …</answer>`, and is rewarded for form and
// agreement with the label. Size and values are the original's. lib/video_tiny.libsonnet is the laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

{
  kind:: 'rl',
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'video_actions',
  num_iterations: 300,
  algorithm: { type: 'grpo', kl_coeff: 0.1, reward_scale: 0.5, advantage: { scale: 'none' } },
  optimizer: { learning_rate: 2e-5, per_device_batch_size: 1, gradient_checkpointing: true },
  rollout: {
    episodes_per_iteration: 32,
    generations_per_sample: 4,
    max_response_tokens: 512,
    temperature: 0.7,
    top_p: 0.9,
  },
  policy: {
    model: { hub: 'Qwen/Qwen2.5-VL-3B-Instruct' },
    model_context_size: 2048,
  },
  data: {
    dir: data_dir,
    train: [{ path: data_dir + '/assembly/train' }],
    validation: [{ path: data_dir + '/assembly/validation' }],
    frames: { min: 4, max: 8, interval: 2 },
  },
  reward: { terms: [{ name: 'format_accuracy', weight: 1, format_weight: 0.3, accuracy_weight: 0.7 }] },
  validation: { every_n_iterations: 50, prompts: 256 },
  checkpoint: { save_every_n_iterations: 50, keep_every_n_iterations: null },
}
