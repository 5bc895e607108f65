// A vision-language model describes how to edit an image. Its hidden states of image, instruction and response condition a frozen diffusion
// model, and a judge grades alignment and quality. Size and values are the original's.
// lib/edit_tiny.libsonnet is the laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'edit_response',
  num_iterations: 500,
  algorithm: { type: 'grpo', kl_coeff: 0 },
  optimizer: { learning_rate: 1e-5, per_device_batch_size: 1, gradient_checkpointing: true },
  // 8 devices with 1 answer each, accumulated twice.
  rollout: { episodes_per_iteration: 16, generations_per_sample: 8, max_response_tokens: 256, packed_weights: 'all' },
  policy: {
    model: { hub: 'Qwen/Qwen2.5-VL-7B-Instruct' },
    lora: { rank: 16, alpha: 32 },
    model_context_size: 4096,
    pixels: { image: { max_pixels: 1024 * 28 * 28 } },
  },
  prompt: {
    // The system message that Qwen-Image-Edit's transformer was trained under, to the letter.
    system: "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.",
  },
  data: {
    dir: data_dir,
    train: [{ path: data_dir + '/edits/train.jsonl' }],
    validation: [{ path: data_dir + '/edits/validation.jsonl' }],
  },
  environment: {
    type: 'model',
    model: data_dir + '/qwen-image-edit/transformer',
    model_type: 'qwen',
    parts: { vae: data_dir + '/qwen-image-edit/vae' },
    max_pixels: 1024 * 1024,
    num_steps: 50,
    guidance_scale: 4,
    pictures_at_once: 1,
  },
  reward: {
    endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE'),
    terms: [{ name: 'align_quality', weight: 1 }],
  },
  validation: { every_n_iterations: 50, prompts: 64 },
  checkpoint: { save_every_n_iterations: 50, keep_every_n_iterations: null },
}
