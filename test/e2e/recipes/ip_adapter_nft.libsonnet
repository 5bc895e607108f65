// DiffusionNFT over moving averages, in two steps an iteration, at two of the noise levels of each picture.
{
  local supervised = super.task != 'ip_adapter' || super.algorithm.type == 'sft',
  algorithm+: if supervised then {} else { surrogate: 'nft', minibatches: 2, kl_coeff: 1e-3, nft: { levels: 2, sampled_by: 'average' } },
  optimizer+: if supervised then {} else { ema_decay: 0.5 },
  rollout+: if supervised then {} else { noise_level: 0, same_latent: false, sde_window: null },
}
