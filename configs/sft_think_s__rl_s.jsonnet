// SFT Think (S) => RL (S)
(import 'lib/rl.libsonnet') + { start:: 'sft_think_s', sets:: ['s'], think:: true }
