// What matters when an image model learns to write from rewards: how advantages are compared, what OCR weighs beside the judge's verdict, and
// how noisy its steps are; at laptop size, one factor changed at a time, the settings of configs/ip_adapter.jsonnet in the middle:
//   editrl sweep experiments/ip_adapter_ablation.jsonnet --max-parallel 1

// Six cells of about three minutes each on two cores, from the autoencoder and the warm-up that configs/ip_adapter.jsonnet leaves behind (five
// minutes more where they are not there). Of several seeds, each with parents of its own: ['1', '2', '3']; of every combination: design: 'product'.
local seeds = [];

local terms(ocr) = {
  reward+: {
    terms: std.filter(function(term) term.weight > 0, [
      { name: 'ocr', weight: ocr },
      { name: 'align_quality', weight: 1 - ocr },
    ]),
  },
};
{
  name: 'ip_adapter_ablation',
  base: import '../configs/ip_adapter.jsonnet',
  with: ['../configs/lib/ip_adapter_tiny.libsonnet'],
  axes: {
    // GRPO takes one step per iteration, so every ratio is 1. PPO takes two, and clips.
    algorithm: { grpo: {}, ppo: { algorithm+: { type: 'ppo', clip_range: 1e-4, minibatches: 2 } } },
    ocr: { '0': terms(0), '0.5': {}, '1': terms(1) },
    noise: { '0.4': { rollout+: { noise_level: 0.4 } }, '0.7': {}, '1.0': { rollout+: { noise_level: 1.0 } } },
    [if seeds != [] then 'seed']: { [seed]: { seed: std.parseInt(seed) } for seed in seeds },
  },
  design: 'one_factor',
  baseline: { algorithm: 'grpo', ocr: '0.5', noise: '0.7' },
  share: if seeds == [] then [] else ['seed'],
}
