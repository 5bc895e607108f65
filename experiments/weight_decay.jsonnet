// The supervised start on simple edits with and without weight decay, at laptop size over three seeds:
//   editrl sweep experiments/weight_decay.jsonnet
// The laptop size itself has none; results/weight_decay.md has the results.
{
  name: 'weight_decay',
  base: 'recipe',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    recipe: { sft_s: import '../configs/sft_s.jsonnet' },
    decay: { [decay]: { optimizer+: { weight_decay: std.parseInt(decay) } } for decay in ['0', '1'] },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  share: ['seed'],
}
