// Supervised training on a few labeled captions: the start of the small decoder of prompt_enhance.
(import 'text_start.jsonnet') + (import 'lib/text_tiny.libsonnet')
