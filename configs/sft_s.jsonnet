// SFT (S): the start trained on simple edits.
(import 'lib/sft.libsonnet') + { sets:: ['s'] }
