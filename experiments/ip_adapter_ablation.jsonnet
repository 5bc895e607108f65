// What matters when an image model learns to write from rewards: how advantages are compared, what OCR weighs beside the judge's verdict, and
// how noisy its steps are; at laptop size over three seeds, one factor changed at a time:
//   editrl sweep experiments/ip_adapter_ablation.jsonnet
local terms(ocr) = {
  reward+: {
    mode: null,
    endpoint: 'embedded',
    terms: std.filter(function(term) term.weight > 0, [
      { name: 'ocr_confidence', weight: ocr },
      { name: 'align_quality', weight: 1 - ocr },
    ]),
  },
};
{
  name: 'ip_adapter_ablation',
  base: import '../configs/ip_adapter.jsonnet',
  with: ['../configs/lib/ip_adapter_tiny.libsonnet'],
  axes: {
    algorithm: { grpo: {}, ppo: { algorithm: { type: 'ppo' } } },
    ocr: { '0': terms(0), '0.5': terms(0.5), '1': terms(1) },
    noise: { [level]: { rollout+: { noise_level: std.parseJson(level) } } for level in ['0.4', '0.7', '1.0'] },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  design: 'one_factor',
  baseline: { algorithm: 'grpo', ocr: '0.5', noise: '0.7' },
  share: ['seed'],
}
