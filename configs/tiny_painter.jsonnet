// The tiny world's image model: it paints what captions in plain words say, and knows no odd ones. prompt_enhance writes for it.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  task: 'text_to_image',
  num_iterations: 1200,
  algorithm: { type: 'sft', warmup_steps: 50, sft: { batch_size: 64, condition_dropout: 0 } },
  optimizer: { learning_rate: 1e-3, per_device_batch_size: 64, schedule: 'cosine' },
  environment: {
    init: {
      num_layers: 3,
      attention_head_dim: 24,
      num_attention_heads: 4,
      patch: 4,
      text_length: 16,
      // The image follows from the caption and not from the noise. A small model learns it faster than a velocity.
      prediction: 'sample',
    },
    width: 16,
    height: 16,
    engine: { provider: 'cpu' },
  },
  data: {
    dir: data_dir,
    train: [{ path: data_dir + '/tiny/captioned/train/plain.jsonl' }],
    validation: [{ path: data_dir + '/tiny/captioned/validation/plain.jsonl' }],
    tiny: {},
  },
  validation: { every_n_iterations: 100, prompts: 128 },
  checkpoint: { save_every_n_iterations: 100 },
}
