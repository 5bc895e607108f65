// The smallest size at which every part still works, merged over configs/lib/tiny.libsonnet: a chain of runs in seconds.
local small = {
  counts: { images: 64, train: 32, prompts: 64, validation: 16, truth: 16 },
  decoder: { hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2 },
  tokenizer: { codebook_size: 32, hidden: 32, code_dim: 8 },
  num_iterations: { vq: 40, sft: 12, rl: 6 },
  batch: { vq: 32, sft: 8, rl: 8 },
};

{
  data+: { tiny+: { counts: small.counts } },
  num_iterations: small.num_iterations[$.kind],
  optimizer+: { [if $.kind == 'rl' then null else 'learning_rate']: 5e-3, per_device_batch_size: small.batch[$.kind] },
  algorithm+: if $.kind == 'rl' then {} else { sft+: { batch_size: small.batch[$.kind], patience: null } },
  rollout+: { episodes_per_iteration: 16, generations_per_sample: 4, chunk_groups: 2 },
  validation+: { every_n_iterations: if $.kind == 'rl' then 3 else 6, prompts: 16 },
  checkpoint+: { save_every_n_iterations: if $.kind == 'rl' then 2 else 4, keep_every_n_iterations: null, keep_last: 2 },
  policy+: { init: if super.init == null then null else super.init + small.decoder },
  environment+: if $.kind == 'vq' then { init+: small.tokenizer } else {},
}
