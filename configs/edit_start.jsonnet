// Supervised training on a few labeled responses: the start of edit_response at laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

(import 'edit_response.jsonnet') + {
  algorithm: { type: 'sft', warmup_steps: 20, sft: { batch_size: 32 } },
  environment: null,
  data+: { train: [{ path: data_dir + '/edits/labelled.jsonl' }] },
}
