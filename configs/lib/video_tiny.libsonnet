// The laptop size of video_actions: a small model that sees clips of the tiny world and writes in its words. It is trained on a few labelled
// clips first (video_start.jsonnet), and then by rewards.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local clips(split) = [{ path: data_dir + '/tiny/clips/' + split }];

{
  local supervised = super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if supervised then 400 else 80,
  optimizer: if supervised
  then { learning_rate: 2e-3, per_device_batch_size: 32 }
  else { learning_rate: 5e-4, per_device_batch_size: 64 },
  rollout+: { episodes_per_iteration: 256, generations_per_sample: 8, max_response_tokens: 16, threads: 1 },
  policy+: {
    model: if supervised then null else { run: 'video_start', config: 'video_start.jsonnet' },
    init: if supervised then {
      hidden_size: 96,
      intermediate_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      embedding_std: 0.5,
      vision: { depth: 1, hidden_size: 48, intermediate_size: 96, num_heads: 4, patch_size: 4 },
    } else null,
    train: { mm_vision: supervised },
    pixels: { video: { min_pixels: 1024, max_pixels: 1024 }, image: { min_pixels: 1024, max_pixels: 1024 } },
    model_context_size: 80,
    engine+: { provider: 'cpu' },
  },
  data+: {
    train: clips(if supervised then 'labelled' else 'train'),
    validation: clips('validation'),
    tiny: { counts: { labelled: 256 } },
  },
  prompt+: { chat: false },
  validation+: { every_n_iterations: 20 },
}
