// Reinforcement learning that goes on, beside supervised training with weight decay for as many seconds, at laptop size over three seeds:
//   editrl sweep experiments/long_run.jsonnet
// What was found: results/long_run.md.
{
  name: 'long_run',
  base: 'recipe',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    recipe: { rl: import '../configs/sft_s__rl_s.jsonnet', sft: import '../configs/sft_s.jsonnet' },
    length: {
      rl: { num_iterations: 900 },
      // An iteration of RL takes about as long as 15 optimizer steps of supervised training.
      sft: { num_iterations: 13500, algorithm+: { sft+: { patience: null } }, optimizer+: { weight_decay: 1 } },
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  zip: [['recipe', 'length']],
  share: ['seed'],
}
