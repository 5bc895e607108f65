// Supervised training on clips that are described in other words than an answer has: it stands for what a vision-language model brings along
// that the laptop size starts from (lib/video_tiny.libsonnet).
local data_dir = std.extVar('APP__DATA_DIR');

(import 'video_start.jsonnet') + {
  kind:: 'sight',
  data+: { train: [{ path: data_dir + '/assembly/described' }] },
}
