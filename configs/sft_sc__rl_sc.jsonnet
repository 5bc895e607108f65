// SFT (S+C) => RL (S+C)
(import 'lib/rl.libsonnet') + { start:: 'sft_sc', sets:: ['s', 'c'] }
