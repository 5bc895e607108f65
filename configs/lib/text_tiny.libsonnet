// The laptop size of text_plain: a small decoder that writes in the words of the tiny world. It is trained on a few labeled captions
// first (text_start.jsonnet), and then by rewards.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');

{
  local supervised = super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if supervised then 80 else 160,
  optimizer: if supervised
  then { learning_rate: 2e-3, per_device_batch_size: 32 }
  else { learning_rate: 5e-4, per_device_batch_size: 64 },
  rollout+: { episodes_per_iteration: 256, generations_per_sample: 8, threads: 1 },
  policy+: {
    model: if supervised then null else { run: 'text_start', config: 'text_start.jsonnet' },
    init: if supervised then {
      hidden_size: 96,
      intermediate_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      embedding_std: 0.5,
    } else null,
    model_context_size: 48,
    engine+: { provider: 'cpu' },
  },
  // Few labels, so that supervised training leaves room for rewards to improve the model.
  data+: { tiny+: { counts+: { labelled: 32 } } },
  prompt+: { chat: false, template: '{prompt} means' },
  validation+: { every_n_iterations: 20 },
}
