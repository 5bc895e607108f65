// The vision tokenizer of the tiny world: a small VQ autoencoder trained on its images.
(import 'lib/vq.libsonnet') + (import 'lib/tiny.libsonnet')
