// GRPO against a judge, without labels. It trains `start` and `tiny_vq` first.
(import 'editrl/sft_s__rl_s.jsonnet') + { start:: 'start' } + (import 'editrl/lib/tiny.libsonnet')
