// SFT (S+C) Two Stage => RL (C)
(import 'lib/rl.libsonnet') + { start:: 'sft_sc2stage', sets:: ['c'] }
