// Two learning rates with two seeds each. Every seed shares one supervised start.
{
  name: 'learning_rate',
  base: import '../configs/quickstart.jsonnet',
  axes: {
    rate: {
      low: { optimizer+: { learning_rate: 2e-4 } },
      high: { optimizer+: { learning_rate: 4e-4 } },
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2'] },
  },
  design: 'product',
  share: ['seed'],
  baseline: { rate: 'low' },
}
