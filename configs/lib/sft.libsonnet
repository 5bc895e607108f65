// The supervised start of a family: EARL's SFT values.
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
    schedule: 'cosine',
    min_learning_rate_ratio: 0.1,
    per_device_batch_size: 2,
    gradient_checkpointing: true,
  },
  policy+: { tokenizer: $.base_model },
  validation: { every_n_iterations: 100 },
}
