// Over emu3_small.libsonnet: the iterations of the contract, and the configs' own judge in place of a module. Its start asks nobody.
local list(split) = { path: std.extVar('APP__EMU3') + '/data/' + split + '/list/tokenized_datalist.json' };

{
  local supervised = super.algorithm.type == 'sft',
  num_iterations: if supervised then super.num_iterations else 6,
  data+: { validation: [list('validation')] },
  rollout+: { episodes_per_iteration: 16, chunk_groups: 2 },
  validation+: if supervised then {} else { every_n_iterations: 3 },
  reward+: { terms: if supervised then [{ name: 'jpeg_size', weight: 1 }] else [] },
}
