// Advantages over the whole batch and two steps an iteration, of the IP-Adapter alone; a window of noisy steps.
{
  local supervised = super.algorithm.type == 'sft',
  algorithm+: if supervised then {} else { type: 'ppo' },
  policy+: if supervised then {} else { train: 'adapter' },
  rollout+: { sde_window: { size: 2, range: [0, 3] } },
}
