// A VQ image tokenizer trained on pixels. The hidden sections are those that a tokenizer does not have: an overlay that
// speaks to every kind of run may still name them, because a field that is hidden stays hidden.
{
  kind:: 'vq',
  sets:: [],
  validation_sets:: [],
  think:: false,
  start:: null,
  policy:: {},
  rollout:: {},
  reward:: {},

  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'image_tokenizer',
  num_iterations: 20000,
  algorithm: { sft: { batch_size: 64 } },
  optimizer: { learning_rate: 1e-4, per_device_batch_size: 8 },
  environment: { init: { codebook_size: 8192, patch: 8, hidden: 256, code_dim: 32 } },
  data: {
    dir: std.extVar('APP__DATA_DIR'),
    train: [{ path: $.data.dir + '/images/train/list/tokenized_datalist.json' }],
    validation: [{ path: $.data.dir + '/images/validation/list/tokenized_datalist.json' }],
  },
}
