// Supervised training on a few labeled captions: where the small decoder of prompt_enhance starts from.
(import 'text_start.jsonnet') + (import 'lib/text_tiny.libsonnet')
