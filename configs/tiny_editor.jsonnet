// The tiny world's image editor, conditioned on the hidden states of edit_start with good responses. edit_response generates images with it.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local edits(split) = [{ path: data_dir + '/tiny/pictured/' + split + '.jsonl' }];

{
  // The overlays of edit_response name it, and a hidden field stays hidden.
  environment:: {},

  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  task: 'image_editor',
  num_iterations: 2000,
  algorithm: { type: 'sft', warmup_steps: 50, sft: { batch_size: 64, condition_dropout: 0 } },
  optimizer: { learning_rate: 1e-3, per_device_batch_size: 64, schedule: 'cosine' },
  prompt: { chat: false },
  reader: {
    model: { run: 'edit_start', config: 'edit_start.jsonnet' },
    pixels: { image: { min_pixels: 1024, max_pixels: 1024 } },
    model_context_size: 48,
    engine: { provider: 'cpu' },
  },
  policy: {
    init: {
      num_layers: 3,
      attention_head_dim: 24,
      num_attention_heads: 4,
      patch: 8,
      // The edited image follows from the condition and not from the noise. A small model learns it faster than a velocity.
      prediction: 'sample',
    },
    engine: { provider: 'cpu' },
  },
  rollout: { num_steps: 4, noise_level: 0 },
  data: {
    dir: data_dir,
    train: edits('truth'),
    validation: edits('validation'),
    // For every other edit, only the response describes the change.
    tiny: { names: 'odd', counts: { train: 128 } },
  },
  reward: { endpoint: 'embedded', model: 'editrl-rule-judge', mode: null, terms: [{ name: 'align_quality', weight: 1 }] },
  validation: { every_n_iterations: 500, prompts: 128, greedy: false },
  checkpoint: { save_every_n_iterations: 100, keep_every_n_iterations: null },
}
