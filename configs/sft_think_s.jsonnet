// SFT Think (S): the start that reasons in words, trained on simple edits.
(import 'lib/sft.libsonnet') + { sets:: ['s'], think:: true }
