// Sweeps a trainer that is not this program's own, as any other run:
//   editrl sweep experiments/foreign_trainer.jsonnet
{
  name: 'foreign_trainer',
  base: import 'foreign/quadratic.jsonnet',
  axes: {
    lr: { '0.05': { parameters+: { learning_rate: 0.05 } }, '0.2': { parameters+: { learning_rate: 0.2 } } },
    seed: { '1': { seed: 1 }, '2': { seed: 2 } },
  },
  design: 'product',
  baseline: { lr: '0.05' },
}
