// A diffusion editor learns from a VLM judge by flow-GRPO: it edits an image by an instruction, and its noisy steps are the actions. LoRA at the size
// of real models. An overlay names the parts of the model. lib/image_editor_tiny.libsonnet is the laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'image_editor',
  num_iterations: 300,
  algorithm: { type: 'grpo', kl_coeff: 0, clip_range: 1e-5, minibatches: 2 },
  optimizer: { learning_rate: 3e-4, weight_decay: 1e-4, per_device_batch_size: 1, gradient_checkpointing: true },
  rollout: {
    episodes_per_iteration: 96,
    generations_per_sample: 12,
    num_steps: 10,
    eval_num_steps: 28,
    noise_level: 0.9,
    sde_window: { size: 3, range: [0, 5] },
    chunk_groups: 1,
  },
  policy: { model_type: 'flux', lora: { rank: 64, alpha: 128 }, max_pixels: 512 * 512 },
  data: {
    dir: data_dir,
    train: [{ path: data_dir + '/edits/train.jsonl' }],
    validation: [{ path: data_dir + '/edits/validation.jsonl' }],
  },
  reward: { endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
  validation: { every_n_iterations: 25, prompts: 64 },
  checkpoint: { save_every_n_iterations: 25, keep_every_n_iterations: null },
}
