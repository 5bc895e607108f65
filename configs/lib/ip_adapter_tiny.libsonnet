// The laptop size of ip_adapter: signs with words, painted by a small flow transformer. Few labelled signs warm it up
// (ip_adapter_warmup.jsonnet), and then OCR teaches it.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local signs(split) = [{ path: data_dir + '/tiny/signs/' + split }];

{
  local supervised = super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if supervised then 2500 else 100,
  optimizer: if supervised
  then { learning_rate: 1e-3, per_device_batch_size: 64 }
  else { learning_rate: 5e-5, per_device_batch_size: 64 },
  rollout+: {
    episodes_per_iteration: 256,
    generations_per_sample: 16,
    num_steps: 10,
    eval_num_steps: 20,
    sde_window: { size: 3, range: [0, 6] },
  },
  policy+: {
    model_type: 'tiny',
    train: 'all',
    model: if supervised then null else { run: 'ip_adapter_warmup', config: 'ip_adapter_warmup.jsonnet' },
    init: if supervised then {
      num_layers: 4,
      attention_head_dim: 24,
      num_attention_heads: 4,
      patch: 4,
      text_length: 3,
      // The wanted picture follows from what is asked, whatever the noise: a small model learns it sooner than the way to it.
      prediction: 'sample',
      ip_adapter: { tokens: 2 },
    } else null,
    engine+: { provider: 'cpu' },
  },
  data+: {
    train: signs(if supervised then 'labelled' else 'train'),
    validation: signs('validation'),
    tiny: { counts: { labelled: 512 } },
  },
  // Nothing is guided here.
  algorithm+: if supervised then { sft+: { condition_dropout: 0 } } else {},
  reward: { mode: 'ocr' },
  validation+: { prompts: 128 },
}
