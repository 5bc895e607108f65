// What a flow policy learns by, at laptop size: one step on its noisy steps as shipped, or none of them, but the sampled
// images with added noise (DiffusionNFT):
//   editrl sweep experiments/flow_losses.jsonnet --max-parallel 1
// Compare them by the ODE's samples (greedy): those called sampled have noise in the first, and none in the second.
// Six cells of forty iterations, and before them an autoencoder and a warm-up of some five minutes for each seed.
{
  name: 'flow_losses',
  base: import '../configs/ip_adapter.jsonnet',
  with: ['../configs/lib/ip_adapter_tiny.libsonnet'],
  axes: {
    loss: {
      flow_grpo: {},
      nft: {
        algorithm+: { surrogate: 'nft', clip_range: null, nft: { levels: 3 } },
        // Without noisy steps the images of a group differ only by their initial noise.
        rollout+: { noise_level: 0, sde_window: null, same_latent: false },
      },
    },
    seed: { [seed]: { seed: std.parseInt(seed) } for seed in ['1', '2', '3'] },
  },
  design: 'product',
  // Every seed has its own start.
  share: ['seed'],
  baseline: { loss: 'flow_grpo' },
}
