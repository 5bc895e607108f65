// The supervised start: a small image editor, trained on 750 labeled edits.
(import 'editrl/sft_s.jsonnet') + (import 'editrl/lib/tiny.libsonnet')
