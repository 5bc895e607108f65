// Supervised training on a few labeled clips: the start of video_actions at laptop size.
local data_dir = std.extVar('APP__DATA_DIR');

(import 'video_actions.jsonnet') + {
  kind:: 'start',
  num_iterations: 200,
  algorithm: { type: 'sft', warmup_steps: 20, sft: { batch_size: 32 } },
  data+: { train: [{ path: data_dir + '/assembly/labelled' }] },
}
