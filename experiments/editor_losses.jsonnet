// What an image editor learns by, at laptop size, from one supervised start for each seed: flow-GRPO on noisy steps as shipped, or DiffusionNFT:
//   editrl sweep experiments/editor_losses.jsonnet --max-parallel 1
{
  name: 'editor_losses',
  base: import '../configs/image_editor.jsonnet',
  with: ['../configs/lib/image_editor_tiny.libsonnet'],
  axes: {
    loss: {
      flow_grpo: {},
      nft: {
        num_iterations: 160,
        algorithm+: { surrogate: 'nft', nft: { levels: 2 } },
        optimizer+: { learning_rate: 5e-5 },
        rollout+: { noise_level: 0, sde_window: null, same_latent: false },
      },
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  design: 'product',
  share: ['seed'],
  baseline: { loss: 'flow_grpo' },
}
