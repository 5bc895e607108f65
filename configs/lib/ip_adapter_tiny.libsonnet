// The laptop size of ip_adapter: signs with words, painted by a small flow transformer in the latents of tiny_vae.jsonnet. It starts from
// labeled signs with worn ink (ip_adapter_warmup.jsonnet). Then OCR and the rule judge reward clear writing.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local signs(split) = [{ path: data_dir + '/tiny/signs/' + split }];

{
  // The autoencoder's config has its own sizes.
  local paints = super.task == 'ip_adapter',
  local supervised = paints && super.algorithm.type == 'sft',
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: if !paints then super.num_iterations else if supervised then 2000 else 40,
  optimizer: if !paints
  then super.optimizer
  else if supervised
  then { learning_rate: 1e-3, per_device_batch_size: 32, schedule: 'cosine' }
  else { learning_rate: 5e-5, per_device_batch_size: 64 },
  rollout+: {
    episodes_per_iteration: 256,
    generations_per_sample: 16,
    num_steps: 10,
    eval_num_steps: 20,
    guidance_scale: null,
    // The images of a group start from the same noise, so that their rewards differ only because of the trained steps.
    same_latent: true,
    sde_window: { size: 3, range: [0, 6] },
  },
  policy+: {
    model_type: 'tiny',
    train: 'all',
    model: if supervised then null else { run: 'ip_adapter_warmup', config: 'ip_adapter_warmup.jsonnet' },
    init: if supervised then {
      num_layers: 4,
      attention_head_dim: 24,
      num_attention_heads: 4,
      patch: 1,
      text_length: 3,
      // The desired image follows from the inputs and not from the noise.
      prediction: 'sample',
      ip_adapter: { tokens: 2 },
    } else null,
    parts+: { vae: { run: 'tiny_vae', config: 'tiny_vae.jsonnet' } },
    engine+: { provider: 'cpu' },
  },
  data+: if paints then {
    train: signs(if supervised then 'labelled' else 'train'),
    validation: signs('validation'),
    tiny: {},
  } else {},
  // Nothing is guided here.
  algorithm+: if !paints then {} else if supervised then { warmup_steps: 50, sft+: { batch_size: 32, condition_dropout: 0, min_delta: 1e-4 } } else { kl_coeff: 0, clip_range: null, minibatches: 1 },
  // What tesseract reads, and what a judge sees: OCR alone is gamed.
  reward+: { endpoint: 'embedded', model: 'editrl-rule-judge' } + (if paints then { terms: [{ name: 'ocr', weight: 0.5 }, { name: 'align_quality', weight: 0.5 }] } else {}),
  validation+: if paints then { every_n_iterations: if supervised then 100 else 20, prompts: 128 } else {},
  checkpoint+: if !paints then {} else { save_every_n_iterations: if supervised then 100 else 20, keep_every_n_iterations: null },
}
