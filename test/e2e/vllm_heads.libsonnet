// Heads of a size that vLLM's kernels for a CPU have, merged over recipes/edit_small.libsonnet or recipes/video_small.libsonnet.
{
  policy+: {
    init: if super.init == null then null else super.init {
      hidden_size: 64,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      vision+: { hidden_size: 64, num_heads: 2 },
    },
  },
}
