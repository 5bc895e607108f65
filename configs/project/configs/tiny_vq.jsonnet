// The image tokenizer that every config here reads and writes images with.
(import 'editrl/lib/vq.libsonnet') + (import 'editrl/lib/tiny.libsonnet')
