// The laptop size of edit_response: instructions use odd names (an azure disc), and a small model describes the edit with plain names. It first learns
// from a few labels (edit_start.jsonnet). A small transformer that was trained on plain names learns to edit from its hidden states of good
// responses (tiny_editor.jsonnet). Then rewards improve the model's responses.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local edits(split) = [{ path: data_dir + '/tiny/pictured/' + split + '.jsonl' }];

{
  // What draws has its own sizes.
  local writes = super.task == 'edit_response',
  local supervised = super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  // So few labels, and so briefly, that the start knows some of the names, and is sure of few.
  num_iterations: if !writes then super.num_iterations else if supervised then 40 else 120,
  optimizer: if !writes
  then super.optimizer
  else if supervised
  then { learning_rate: 2e-3, per_device_batch_size: 32 }
  else { learning_rate: 1e-4, per_device_batch_size: 64 },
  algorithm+: if supervised then {} else { kl_coeff: 1e-3 },
  rollout+: if !writes then {} else {
    episodes_per_iteration: 256,
    generations_per_sample: 8,
    max_response_tokens: 12,
    threads: 1,
    packed_weights: 'none',
  },
  policy+: if !writes then {} else {
    model: if supervised then null else { run: 'edit_start', config: 'edit_start.jsonnet' },
    init: if supervised then {
      hidden_size: 96,
      intermediate_size: 256,
      num_hidden_layers: 3,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      embedding_std: 0.5,
      // An image has four rows and columns. With the usual base their positions would be nearly equal.
      rope_theta: 10,
      vision: { depth: 1, hidden_size: 48, intermediate_size: 96, num_heads: 4, patch_size: 4 },
    } else null,
    lora: null,
    train: { mm_vision: supervised },
    pixels: { image: { min_pixels: 1024, max_pixels: 1024 } },
    model_context_size: 48,
    engine+: { provider: 'cpu' },
  },
  prompt: { chat: false },
  data+: if !writes then {} else {
    train: edits(if supervised then 'train' else 'prompts'),
    validation: edits('validation'),
    tiny: { names: 'odd', counts: { train: 128 } },
  },
  environment: if !writes then super.environment else if supervised then null else {
    type: 'model',
    model: { run: 'tiny_editor', config: 'tiny_editor.jsonnet' },
    // The states of such a small model change much in training, and the editor was trained on the states of its start.
    read_by: 'start',
    num_steps: 4,
    pictures_at_once: 64,
    engine: { provider: 'cpu' },
  },
  reward+: { endpoint: 'embedded', model: 'editrl-rule-judge' } + (if writes then { also_compute: ['word_overlap'] } else {}),
  validation+: if !writes then {} else { every_n_iterations: 20, prompts: 256 },
  checkpoint+: if !writes then {} else { save_every_n_iterations: 20 },
}
