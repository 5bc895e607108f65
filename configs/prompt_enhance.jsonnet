// A language model rewrites prompts with odd words ("a crimson orb above a cobalt tile") for an image model that was trained on plain words. The
// reward is the similarity of the image to the user's own words, by a CLIP trained on both. All models are small and trained here: a decoder
// (enhance_start.jsonnet), the image model (tiny_painter.jsonnet) and CLIP (tiny_clip.jsonnet). lib/enhance_smollm2.libsonnet uses SmolLM2 instead.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');
local captions(split) = [{ path: data_dir + '/tiny/words/' + split + '.jsonl' }];

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  task: 'prompt_enhance',
  num_iterations: 160,
  algorithm: { type: 'grpo', kl_coeff: 0.001 },
  optimizer: { learning_rate: 5e-4, per_device_batch_size: 64 },
  rollout: { episodes_per_iteration: 256, generations_per_sample: 8, max_response_tokens: 24, temperature: 1, threads: 1 },
  policy: {
    model: { run: 'enhance_start', config: 'enhance_start.jsonnet' },
    model_context_size: 48,
    engine: { provider: 'cpu' },
  },
  prompt: { chat: false, system: null, template: '{prompt} means' },
  data: {
    dir: data_dir,
    train: captions('train'),
    validation: captions('validation'),
    tiny: { counts: { labelled: 32 } },
  },
  environment: {
    type: 'model',
    model: { run: 'tiny_painter', config: 'tiny_painter.jsonnet' },
    width: 16,
    height: 16,
    num_steps: 4,
    pictures_at_once: 64,
    engine: { provider: 'cpu' },
  },
  reward: {
    terms: [{ name: 'clip', weight: 1, model: { run: 'tiny_clip', config: 'tiny_clip.jsonnet' } }],
    also_compute: ['prompt_quality'],
  },
  validation: { every_n_iterations: 20, prompts: 256, temperature: 1 },
  checkpoint: { save_every_n_iterations: 20, keep_every_n_iterations: null },
}
