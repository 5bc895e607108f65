// The laptop size of edit_response: a small model sees scenes of the tiny world and says in its words which thing is where and what becomes of
// it. It learns to see and to speak first (edit_seen.jsonnet), then from a few labels what is asked of it (edit_start.jsonnet); a small transformer
// learns to edit by what it makes of good responses (tiny_editor.jsonnet); then rewards teach it to write them.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local edits(split) = [{ path: data_dir + '/tiny/pictured/' + split + '.jsonl' }];

{
  // What draws has its own sizes.
  local writes = super.task == 'edit_response',
  local stage = if !writes then 'draws' else if 'stage' in super then super.stage else 'rl',
  local sizes = {
    seen: {
      num_iterations: 800,
      optimizer: { learning_rate: 2e-3, per_device_batch_size: 32, schedule: 'cosine' },
      algorithm: { sft+: { batch_size: 64 } },
      split: 'scenes',
      model: null,
      environment: null,
      every: 200,
    },
    start: {
      num_iterations: 100,
      optimizer: { learning_rate: 1e-3, per_device_batch_size: 32 },
      algorithm: {},
      split: 'train',
      model: { run: 'edit_seen', config: 'edit_seen.jsonnet' },
      environment: null,
      every: 20,
    },
    rl: {
      num_iterations: 60,
      optimizer: { learning_rate: 5e-4, per_device_batch_size: 64 },
      algorithm: { kl_coeff: 1e-3 },
      split: 'prompts',
      model: { run: 'edit_start', config: 'edit_start.jsonnet' },
      environment: {
        type: 'model',
        model: { run: 'tiny_editor', config: 'tiny_editor.jsonnet' },
        num_steps: 4,
        pictures_at_once: 64,
        engine: { provider: 'cpu' },
      },
      every: 20,
    },
  },
  local size = if writes then sizes[stage] else sizes.rl,
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if !writes then super.num_iterations else size.num_iterations,
  optimizer: if !writes then super.optimizer else size.optimizer,
  algorithm+: if !writes then {} else size.algorithm,
  rollout+: { episodes_per_iteration: 256, generations_per_sample: 8, max_response_tokens: 16, threads: 1 },
  policy+: {
    model: size.model,
    init: if stage == 'seen' then {
      hidden_size: 96,
      intermediate_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      embedding_std: 0.5,
      // A picture has four rows and columns: with the usual base they would all look alike.
      rope_theta: 10,
      vision: { depth: 1, hidden_size: 48, intermediate_size: 96, num_heads: 4, patch_size: 4 },
    } else null,
    lora: null,
    train: { mm_vision: stage == 'seen' },
    pixels: { image: { min_pixels: 1024, max_pixels: 1024 } },
    model_context_size: 64,
    engine+: { provider: 'cpu' },
  },
  prompt: { chat: false },
  data+: if !writes then {} else {
    train: edits(size.split),
    validation: edits('validation'),
    tiny: {},
  },
  environment: if !writes then super.environment else size.environment,
  reward+: { endpoint: 'embedded', model: 'editrl-rule-judge' },
  validation+: if !writes then {} else { every_n_iterations: size.every, prompts: 256 },
  checkpoint+: if !writes then {} else { save_every_n_iterations: 20 },
}
