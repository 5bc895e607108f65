// SFT (S+C): the start trained on simple and complex edits together.
(import 'lib/sft.libsonnet') + { sets:: ['s', 'c'] }
