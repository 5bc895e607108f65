// The tiny world's CLIP: it knows captions in plain words and in odd ones, and is what prompt_enhance is judged by.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local tower = { hidden_size: 64, intermediate_size: 256, num_hidden_layers: 2, num_attention_heads: 4 };

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  task: 'image_text_encoder',
  num_iterations: 600,
  algorithm: { warmup_steps: 50, matched_cosine: 0.36, sft: { batch_size: 128 } },
  optimizer: { learning_rate: 2e-3, per_device_batch_size: 128, schedule: 'cosine' },
  environment: {
    init: {
      projection_dim: 64,
      text_config: tower { max_position_embeddings: 20, merges: 1024 },
      vision_config: tower { image_size: 16, patch_size: 8 },
    },
    engine: { provider: 'cpu' },
  },
  data: {
    dir: data_dir,
    train: [{ path: data_dir + '/tiny/captioned/train/' + words + '.jsonl' } for words in ['plain', 'odd']],
    validation: [{ path: data_dir + '/tiny/captioned/validation/odd.jsonl' }],
    tiny: {},
  },
  validation: { every_n_iterations: 100, prompts: 512 },
  checkpoint: { save_every_n_iterations: 100 },
}
