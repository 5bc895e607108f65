// SFT (S+C) => RL (C)
(import 'lib/rl.libsonnet') + { start:: 'sft_sc', sets:: ['c'] }
