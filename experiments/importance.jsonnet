// Does it pay to correct for a sampler that is not the trainer? Captions, with an adapter that learns here and answers from a vLLM that serves the
// same base with weights of 4 bits. experiments/results/importance.md says how the server is started, and what was found.
{
  name: 'importance',
  base: (import '../configs/text_plain.jsonnet') + (import '../configs/lib/text_tiny.libsonnet') + {
    num_iterations: 40,
    policy+: {
      model: std.extVar('APP__IMPORTANCE_BASE'),
      lora: { rank: 8, alpha: 32, targets: 'all-linear' },
    },
    optimizer+: { learning_rate: 3e-3 },
    rollout+: { engine: { type: 'vllm', base_url: std.extVar('APP__IMPORTANCE_SERVER') }, episodes_per_iteration: 128 },
    validation+: { every_n_iterations: 20, greedy: false },
  },
  axes: {
    correction: {
      none: { rollout+: { importance_cap: null } },
      token: {},
    },
    seed: { '1': { seed: 1 }, '2': { seed: 2 }, '3': { seed: 3 }, '4': { seed: 4 }, '5': { seed: 5 } },
  },
  baseline: { correction: 'none' },
}
