// The supervised warm-up of ip_adapter: flow matching on labelled pictures.
(import 'ip_adapter.jsonnet') + {
  num_iterations: 400,
  algorithm: { type: 'sft', warmup_steps: 50, sft: { batch_size: 64, patience: 5, min_delta: 1e-4 } },
}
