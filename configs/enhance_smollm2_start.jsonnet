// Supervised training on a few labeled captions: the start of SmolLM2 in prompt_enhance.
local data_dir = std.extVar('APP__DATA_DIR');

(import 'prompt_enhance.jsonnet') + { algorithm: { type: 'sft', warmup_steps: 2, sft: { batch_size: 16 } } } + (import 'lib/enhance_smollm2.libsonnet') + {
  data+: {
    columns: { expected: 'expected' },
    train: [{ path: data_dir + '/tiny/words/labelled.jsonl' }],
  },
  validation+: { every_n_iterations: null, prompts: 64 },
}
