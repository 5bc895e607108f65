// The autoencoder of the tiny world's signs, for a flow model that paints latents: policy.parts.vae: {run: 'tiny_vae', config: 'tiny_vae.jsonnet'}.
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');
local data_dir = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  task: 'image_autoencoder',
  num_iterations: 1500,
  algorithm: { warmup_steps: 20, sft: { batch_size: 16 } },
  optimizer: { learning_rate: 3e-3, per_device_batch_size: 16, betas: [0.9, 0.99], schedule: 'cosine' },
  environment: { init: { latent_channels: 8, block_out_channels: [16, 32, 64] }, engine: { provider: 'cpu' } },
  data: {
    dir: data_dir,
    train: [{ path: data_dir + '/tiny/signs/train' }],
    validation: [{ path: data_dir + '/tiny/signs/validation' }],
    tiny: {},
  },
  validation: { every_n_iterations: 100, prompts: 128 },
  checkpoint: { save_every_n_iterations: 50 },
}
