// Which reward to train on, with and without a KL penalty, at laptop size:
//   editrl sweep experiments/reward_ablation.jsonnet
{
  name: 'reward_ablation',
  base: import '../configs/sft_s__rl_s.jsonnet',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    reward: { viescore: { reward+: { mode: 'viescore' } }, ground: { reward+: { mode: 'ground_score' } } },
    kl: { '0': { algorithm+: { kl_coeff: 0 } }, '3e-4': {} },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  // All cells are compared by these measures, whatever each is trained on. The first one gives the order.
  measure: ['viescore', 'ground_score'],
  design: 'product',
  // Every seed has its own start.
  share: ['seed'],
  baseline: { reward: 'viescore', kl: '3e-4' },
}
