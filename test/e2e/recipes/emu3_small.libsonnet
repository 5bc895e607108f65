// The full size's configs with the small Emu3 of test/fixture_scripts/emu3.py in the places of the published models and datasets. Its starts
// are trained instead of fetched.
local emu3 = std.extVar('APP__EMU3');
local list(split) = { path: emu3 + '/data/' + split + '/list/tokenized_datalist.json', coefficient: 1.0 };

{
  local supervised = super.algorithm.type == 'sft',
  base_model:: emu3 + '/model',
  checkpoints:: { [name]: { run: name, config: name + '.jsonnet' } for name in ['sft_s', 'sft_think_s'] },
  num_iterations: if supervised then 80 else 4,
  data+: { train: [list('train')], validation: [list('validation')] },
  optimizer+: { per_device_batch_size: 4, learning_rate: if supervised then 2e-2 else 1e-3 },
  algorithm+: if supervised then { warmup_steps: 5, sft+: { batch_size: 8 } } else {},
  rollout+: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 70, threads: 1 },
  policy+: {
    tokenizer: emu3 + '/model',
    model_context_size: if $.think then 128 else 72,
    engine+: { provider: 'cpu' },
  },
  environment+: { model: emu3 + '/model', engine+: { provider: 'cpu', threads: 1 } },
  reward+: { terms: [{ name: 'module', weight: 1, module: std.extVar('APP__EMU3_REWARD'), settings: { at: 64 } }] },
  validation+: { every_n_iterations: if supervised then 40 else 2, prompts: 3 },
  checkpoint+: { save_every_n_iterations: if supervised then 40 else 2, keep_every_n_iterations: null },
  track+: { push_to_hub: null, log_episodes_every_n_iterations: 1 },
}
