// Clipping, aggregation and ratios of whole answers, against one step an iteration, at laptop size:
//   editrl sweep experiments/loss_options.jsonnet
local steps = { algorithm+: { minibatches: 4 } };
local clipped = steps + { algorithm+: { clip_range: 0.2 } };
local cispo = steps + { algorithm+: { surrogate: 'cispo', clip_range_high: 0.28 } };
local gspo = steps + { algorithm+: { ratio: 'answer', aggregation: 'answer', clip_range: 0.01 } };
// Four steps an iteration at a quarter of the learning rate.
local slow = { optimizer+: { learning_rate: 1e-4 } };
{
  name: 'loss_options',
  base: import '../configs/sft_s__rl_s.jsonnet',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    loss: {
      one_step: {},
      dr_grpo: { algorithm+: { aggregation: 'dr_grpo', advantage+: { scale: 'none' } } },
      clipped: clipped,
      dapo: steps + { algorithm+: { clip_range: 0.2, clip_range_high: 0.28, aggregation: 'dapo', drop_zero_spread: true } },
      cispo: cispo,
      gspo: gspo,
      clipped_slow: clipped + slow,
      cispo_slow: cispo + slow,
      gspo_slow: gspo + slow,
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3', '4', '5'] },
  },
  measure: ['viescore'],
  design: 'product',
  // Every seed has its own start.
  share: ['seed'],
  baseline: { loss: 'one_step' },
}
