// The supervised warm-up of ip_adapter: flow matching on labeled images.
(import 'ip_adapter.jsonnet') + {
  num_iterations: 1000,
  algorithm: { type: 'sft', sft: { batch_size: 64 } },
}
