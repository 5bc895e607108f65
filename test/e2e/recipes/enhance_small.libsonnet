// The smallest size of prompt_enhance at which every part still works. Half of the reward comes from the server that the environment names.
{
  local task = super.task,
  local enhances = task == 'prompt_enhance',
  local words = enhances || task == 'text_answers',
  local tower = { hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2 },
  num_iterations: if enhances then 6 else 8,
  optimizer+: { per_device_batch_size: 8 },
  algorithm+: if enhances then {} else { warmup_steps: 0, sft+: { batch_size: 8 } },
  rollout+: { episodes_per_iteration: 16, generations_per_sample: 4, max_response_tokens: 12, chunk_groups: 2 },
  validation+: { every_n_iterations: if enhances then 3 else 8, prompts: 8 },
  checkpoint+: { save_every_n_iterations: if enhances then 2 else 8, keep_every_n_iterations: null },
  policy+: {
    init: if task == 'text_answers' then {
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 2,
    } else null,
  },
  environment+: {
    text_to_image: { init+: { num_layers: 1, attention_head_dim: 12, num_attention_heads: 2 } },
    image_text_encoder: { init+: { projection_dim: 16, text_config+: tower, vision_config+: tower } },
    prompt_enhance: { pictures_at_once: 8, num_steps: 2 },
    text_answers: {},
  }[task],
  data+: { tiny+: { counts: if words then { labelled: 16, train: 64, validation: 16 } else { train: 64, validation: 16 } } },
  reward+: if enhances then {
    terms: [
      super.terms[0] { weight: 0.5 },
      { name: 'remote', weight: 0.5, endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE') },
    ],
  } else {},
}
