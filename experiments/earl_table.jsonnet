// EARL's family of ten, start x RL data, at laptop size over three seeds:
//   editrl sweep experiments/earl_table.jsonnet
// A seed has its own tokenizer, data and starts.

// Every run is evaluated on simple and on complex edits, so that the table's columns are those of one held-out set.
local on_both = import 'on_both.libsonnet';
local recipes = {
  sft_s__rl_s: import '../configs/sft_s__rl_s.jsonnet',
  sft_s__rl_c: import '../configs/sft_s__rl_c.jsonnet',
  sft_s__rl_sc: import '../configs/sft_s__rl_sc.jsonnet',
  sft_sc__rl_c: import '../configs/sft_sc__rl_c.jsonnet',
  sft_sc__rl_sc: import '../configs/sft_sc__rl_sc.jsonnet',
  sft_sc2stage__rl_c: import '../configs/sft_sc2stage__rl_c.jsonnet',
  sft_sc2stage__rl_sc: import '../configs/sft_sc2stage__rl_sc.jsonnet',
  sft_think_s__rl_s: import '../configs/sft_think_s__rl_s.jsonnet',
  sft_think_s__rl_c: import '../configs/sft_think_s__rl_c.jsonnet',
  sft_think_s__rl_sc: import '../configs/sft_think_s__rl_sc.jsonnet',
};
{
  name: 'earl_table',
  base: 'recipe',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    recipe: { [name]: recipes[name] + on_both for name in std.objectFields(recipes) },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  share: ['seed'],
}
