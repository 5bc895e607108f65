// Sweeps TRL as any other trainer. Needs the reward server of foreign/trl.jsonnet:
//   editrl sweep experiments/foreign_trl.jsonnet --max-parallel 1
{
  name: 'foreign_trl',
  base: import 'foreign/trl.jsonnet',
  axes: {
    lr: { [lr]: { parameters+: { grpo+: { learning_rate: std.parseJson(lr) } } } for lr in ['0.0005', '0.002'] },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2'] },
  },
  design: 'product',
  baseline: { lr: '0.0005' },
}
