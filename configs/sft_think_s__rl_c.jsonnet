// SFT Think (S) => RL (C)
(import 'lib/rl.libsonnet') + { start:: 'sft_think_s', sets:: ['c'], think:: true }
