// Whether it pays to replace groups without spread (rollout.refill) at equal CPU seconds, at laptop size on complex edits:
//   editrl sweep experiments/refill.jsonnet --max-parallel 1
// Ten cells of about a minute, and before them a warm start for each seed. An iteration that refills samples and judges more: with seed 1 and 80
// iterations each it took 1.25 times the CPU seconds of a plain one. Its cells therefore have fewer iterations by that;
// the seconds that they took are the sum of time/total in their metrics, if nothing else ran meanwhile.
local iterations = { plain: 80, refill: 64 };
// 256 prompts, of which an iteration asks 32: each comes ten times in 80 iterations. Of 4096 none would come twice.
local few = { data+: { train: [source { coefficient: 1 / 16 } for source in super.train] } };
local refill = { rollout+: { refill: { rounds: 1 } } };
{
  name: 'refill',
  base: import '../configs/sft_s__rl_c.jsonnet',
  with: ['../configs/lib/tiny.libsonnet'],
  axes: {
    draw: {
      plain: few { num_iterations: iterations.plain },
      refill: few + refill { num_iterations: iterations.refill },
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3', '4', '5'] },
  },
  measure: 'viescore',
  design: 'product',
  // Every seed has its own start.
  share: ['seed'],
  baseline: { draw: 'plain' },
}
