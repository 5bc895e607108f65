// Supervised training on questions about pictures and sentences to say again: at laptop size this is where edit_start begins, as a real model begins
// with what it has learnt of seeing and reading.
local data_dir = std.extVar('APP__DATA_DIR');

(import 'edit_start.jsonnet') + {
  stage:: 'seen',
  data+: { train: [{ path: data_dir + '/edits/scenes.jsonl' }] },
}
