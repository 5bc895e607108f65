// Whether terms about a part of the picture should be paid to that part, on simple and on complex edits, at laptop size:
//   editrl sweep experiments/spatial_credit.jsonnet
local weights = { edit_success: 0.4, overedit: 0.4, perceptual_quality: 0.2 };
local parts(advantage, credits={}) = {
  algorithm+: { advantage+: { per_term: true, region_border: 0 } + advantage },
  reward+: {
    mode: null,
    terms: [
      { name: 'viescore', part: part, weight: weights[part], credit: std.get(credits, part, 'all') }
      for part in std.objectFields(weights)
    ],
  },
};
// Half of the reward is VIEScore itself, paid to whole answers.
local both(credits={}) = {
  algorithm+: { advantage+: { per_term: true } },
  reward+: {
    mode: null,
    terms: [{ name: 'viescore', weight: 0.5 }] + [
      { name: 'viescore', part: part, weight: 0.25, credit: std.get(credits, part, 'all') }
      for part in ['edit_success', 'overedit']
    ],
  },
};
local regions = { edit_success: 'changed', overedit: 'kept' };
{
  name: 'spatial_credit',
  base: import '../configs/sft_s__rl_s.jsonnet',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    edits: { s: {}, c: { sets:: ['c'] } },
    credit: {
      // The three parts of VIEScore paid to whole answers; to the cells that any answer changes, and the others; that most answers change.
      plain: parts({}),
      majority: parts({ region_share: 0.5 }, regions),
      spatial: parts({ region_share: 0 }, regions),
      // VIEScore itself, whose root and minima let no part make up for another.
      viescore: {},
      // VIEScore and two of its parts: all paid to whole answers, and the parts to the cells that most answers change, and the others.
      both_plain: both(),
      both: both(regions),
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
