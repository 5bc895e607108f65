// The laptop size of image_editor: edits of the tiny world's scenes, drawn by a small flow transformer whose tokens are the scene's cells. A short
// supervised start on few labeled edits (image_editor_start.jsonnet) learns some edits. Then the rule judge's rewards improve it without labels.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local edits(split) = [{ path: data_dir + '/tiny/pictured/' + split + '.jsonl' }];

{
  local supervised = super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if supervised then 500 else 240,
  optimizer: { per_device_batch_size: 64 } + (if supervised
                                              then { learning_rate: 1e-3, schedule: 'cosine' }
                                              else { learning_rate: 2e-4, ema_decay: 0.9 }),
  rollout: {
    episodes_per_iteration: 256,
    generations_per_sample: 8,
    num_steps: 6,
    eval_num_steps: 6,
  } + if supervised then {} else {
    noise_level: 1,
    same_latent: true,
    sde_window: { size: 2, range: [0, 4] },
  },
  policy: {
    model: if supervised then null else { run: 'image_editor_start', config: 'image_editor_start.jsonnet' },
    init: if supervised then {
      num_layers: 3,
      attention_head_dim: 24,
      num_attention_heads: 4,
      patch: 8,
      // The edited image follows from source and instruction and not from the noise. A small model learns it faster than a velocity.
      prediction: 'sample',
    } else null,
    engine: { provider: 'cpu' },
  },
  data+: {
    train: edits(if supervised then 'train' else 'prompts'),
    validation: edits('validation'),
    tiny: { counts: { train: 512, truth: 1 } },
  },
  algorithm+: if supervised
  then { warmup_steps: 50, sft+: { condition_dropout: 0 } }
  else {
    clip_range: null,
    minibatches: 1,
    // Without it, changes of pixels that no judge scores add up to a texture.
    kl_coeff: 0.1,
    // Small differences between similar edits stay small.
    advantage+: { scale: 'global_std' },
  },
  reward+: { endpoint: 'embedded', model: 'editrl-rule-judge' },
  validation+: { every_n_iterations: if supervised then 250 else 40, prompts: 256 },
  checkpoint+: { save_every_n_iterations: if supervised then 100 else 40, keep_every_n_iterations: null },
}
