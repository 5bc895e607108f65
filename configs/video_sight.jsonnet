// Supervised training on described clips, in another form than the answers. It replaces the pretraining of a real vision-language model at
// laptop size (lib/video_tiny.libsonnet).
local data_dir = std.extVar('APP__DATA_DIR');

(import 'video_start.jsonnet') + {
  kind:: 'sight',
  data+: { train: [{ path: data_dir + '/assembly/described' }] },
}
