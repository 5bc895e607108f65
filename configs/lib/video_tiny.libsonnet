// The laptop size of video_actions: a small model that sees clips of the tiny world and writes in its words. It first learns to see and to find
// parts in a list (video_sight.jsonnet), then the form of an answer from a few labeled clips (video_start.jsonnet), and then from rewards.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local clips(split) = [{ path: data_dir + '/tiny/clips/' + split }];

// What each of the three runs has of its own.
local sizes = {
  sight: {
    split: 'described',
    num_iterations: 350,
    algorithm: { sft+: { batch_size: 64 } },
    optimizer: { learning_rate: 2e-3, per_device_batch_size: 64 },
    start: null,
  },
  start: {
    split: 'labelled',
    num_iterations: 80,
    algorithm: {},
    optimizer: { learning_rate: 1e-3, per_device_batch_size: 32 },
    start: 'video_sight',
  },
  rl: {
    split: 'train',
    num_iterations: 160,
    // The original's values suit a large model. A small one needs the full reward and must move farther from its start.
    algorithm: { kl_coeff: 0.01, reward_scale: 1, advantage: { scale: 'std' } },
    optimizer: { learning_rate: 3e-4, per_device_batch_size: 64 },
    start: 'video_start',
  },
};

{
  // A config without a kind is known by its algorithm.
  local kind = if 'kind' in super then super.kind else if super.algorithm.type == 'sft' then 'start' else 'rl',
  local size = sizes[kind],
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: size.num_iterations,
  algorithm+: size.algorithm,
  optimizer: size.optimizer,
  rollout+: { episodes_per_iteration: 256, generations_per_sample: 8, max_response_tokens: 16, temperature: 1, top_p: 1, threads: 1 },
  policy+: {
    model: if size.start == null then null else { run: size.start, config: size.start + '.jsonnet' },
    init: if size.start == null then {
      hidden_size: 96,
      intermediate_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      embedding_std: 0.5,
      vision: { depth: 1, hidden_size: 48, intermediate_size: 96, num_heads: 4, patch_size: 4 },
    } else null,
    train: { mm_vision: kind == 'sight' },
    pixels: { video: { min_pixels: 1024, max_pixels: 1024 }, image: { min_pixels: 1024, max_pixels: 1024 } },
    model_context_size: 80,
    engine+: { provider: 'cpu' },
  },
  data+: {
    train: clips(size.split),
    validation: clips('validation'),
    // Few labels, so that supervised training leaves room for rewards to improve the model.
    tiny: { counts: { described: 1024, labelled: 128, train: 256 }, lists: 4 },
  },
  prompt+: { chat: false },
  validation+: { every_n_iterations: if kind == 'sight' then 100 else 20 },
}
