// SFT Think (S) => RL (S+C)
(import 'lib/rl.libsonnet') + { start:: 'sft_think_s', sets:: ['s', 'c'], think:: true }
