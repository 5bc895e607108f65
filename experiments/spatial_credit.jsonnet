// Whether terms about a part of the picture should be paid to that part, on simple and on complex edits, at laptop size:
//   editrl sweep experiments/spatial_credit.jsonnet
local parts(credits) = {
  algorithm+: { advantage+: { per_term: true, region_border: 0 } },
  reward+: {
    mode: null,
    terms: [
      { name: 'viescore', part: part, weight: weight, credit: credits[part] }
      for part in std.objectFields(credits)
      for weight in [{ edit_success: 0.4, overedit: 0.4, perceptual_quality: 0.2 }[part]]
    ],
  },
};
{
  name: 'spatial_credit',
  base: import '../configs/sft_s__rl_s.jsonnet',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    edits: { s: {}, c: { sets:: ['c'] } },
    credit: {
      viescore: {},
      plain: parts({ edit_success: 'all', overedit: 'all', perceptual_quality: 'all' }),
      spatial: parts({ edit_success: 'changed', overedit: 'kept', perceptual_quality: 'all' }),
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3', '4', '5'] },
  },
  // What all cells are compared by, whatever each is trained on.
  measure: [
    'viescore',
    { name: 'viescore', part: 'edit_success' },
    { name: 'viescore', part: 'overedit' },
    { name: 'viescore', part: 'perceptual_quality' },
  ],
  design: 'product',
  // Every seed has its own start.
  share: ['seed'],
  baseline: { edits: 's', credit: 'plain' },
}
