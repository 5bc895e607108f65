// SFT (S) => RL (C)
(import 'lib/rl.libsonnet') + { start:: 'sft_s', sets:: ['c'], validation_sets:: ['s', 'c'] }
