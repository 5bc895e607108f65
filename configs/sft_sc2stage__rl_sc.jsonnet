// SFT (S+C) Two Stage => RL (S+C)
(import 'lib/rl.libsonnet') + { start:: 'sft_sc2stage', sets:: ['s', 'c'] }
