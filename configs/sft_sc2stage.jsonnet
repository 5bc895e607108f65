// SFT (S+C) in two stages: SFT (S), then simple and complex edits together.
(import 'lib/sft.libsonnet') + { start:: 'sft_s', sets:: ['s', 'c'] }
