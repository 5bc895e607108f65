// SFT (S) => RL (S+C)
(import 'lib/rl.libsonnet') + { start:: 'sft_s', sets:: ['s', 'c'] }
