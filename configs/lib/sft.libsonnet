// The supervised start of a family: EARL's SFT values. Its own schedule falls to a tenth of the learning rate; here it is constant.
(import 'earl.libsonnet') + {
  kind:: 'sft',
  num_iterations: 11600,
  algorithm: { type: 'sft', warmup_steps: 30, sft: { batch_size: 64 } },
  optimizer: {
    learning_rate: 1e-4,
    betas: [0.9, 0.95],
    eps: 1e-6,
    weight_decay: 0.1,
    max_grad_norm: 5.0,
    per_device_batch_size: 2,
    gradient_checkpointing: true,
  },
  validation: { every_n_iterations: 100 },
}
