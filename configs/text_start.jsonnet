// Supervised training on a few labeled captions: the start of text_plain at laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

(import 'text_plain.jsonnet') + {
  num_iterations: 80,
  algorithm: { type: 'sft', warmup_steps: 20, sft: { batch_size: 32 } },
  data+: { train: [{ path: data_dir + '/tiny/words/labelled.jsonl' }] },
}
