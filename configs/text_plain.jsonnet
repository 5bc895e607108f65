// A language model rewrites captions with odd words in plain words ("a crimson orb above a cobalt tile": "a red circle above a blue square").
// The reward is the share of correct words in order, and half of it is for the whole sentence. An overlay names the model: lib/text_tiny.libsonnet or lib/smollm2.libsonnet.
local data_dir = std.extVar('APP__DATA_DIR');
local captions(split) = [{ path: data_dir + '/tiny/words/' + split + '.jsonl' }];

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'text_answers',
  num_iterations: 60,
  algorithm: { type: 'grpo', kl_coeff: 0.001 },
  optimizer: { learning_rate: 2e-4, per_device_batch_size: 16 },
  rollout: { episodes_per_iteration: 64, generations_per_sample: 8, max_response_tokens: 24 },
  policy: { model: null, model_context_size: 512 },
  data: {
    dir: data_dir,
    columns: { expected: 'expected' },
    train: captions('train'),
    validation: captions('validation'),
    tiny: {},
  },
  reward: {
    terms: [{ name: 'word_sequence', weight: 0.5 }, { name: 'exact_words', weight: 0.5 }],
    also_compute: ['word_overlap'],
  },
  validation: { every_n_iterations: 20, prompts: 256 },
  checkpoint: { save_every_n_iterations: 20, keep_every_n_iterations: null },
}
