// The laptop size of image_editor.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local edits(split) = [{ path: data_dir + '/tiny/pictured/' + split + '.jsonl' }];

{
  local supervised = super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if supervised then 1000 else 40,
  optimizer: if supervised
  then { learning_rate: 1e-3, per_device_batch_size: 64, schedule: 'cosine' }
  else { learning_rate: 1e-4, per_device_batch_size: 64 },
  rollout: {
    episodes_per_iteration: 256,
    generations_per_sample: 16,
    num_steps: 8,
    eval_num_steps: 8,
    noise_level: 0.7,
    same_latent: true,
    sde_window: { size: 3, range: [0, 5] },
  },
  policy: {
    model_type: 'tiny',
    model: if supervised then null else { run: 'image_editor_start', config: 'image_editor_start.jsonnet' },
    init: if supervised then {
      num_layers: 3,
      attention_head_dim: 24,
      num_attention_heads: 4,
      patch: 8,
      prediction: 'sample',
    } else null,
    engine: { provider: 'cpu' },
  },
  data+: {
    train: edits(if supervised then 'train' else 'prompts'),
    validation: edits('validation'),
    tiny: { counts: { train: 1024 } },
  },
  algorithm+: if supervised then { warmup_steps: 50, sft+: { batch_size: 64, condition_dropout: 0 } } else { clip_range: null, minibatches: 1 },
  reward+: { endpoint: 'embedded', model: 'editrl-rule-judge' },
  validation+: { every_n_iterations: if supervised then 100 else 10, prompts: 128 },
  checkpoint+: { save_every_n_iterations: if supervised then 100 else 10, keep_every_n_iterations: null },
}
