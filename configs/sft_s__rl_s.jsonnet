// SFT (S) => RL (S)
(import 'lib/rl.libsonnet') + { start:: 'sft_s', sets:: ['s'] }
