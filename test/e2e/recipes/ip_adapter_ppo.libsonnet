// Advantages over the whole batch, two inner epochs of three steps each, of LoRA alone, whose moving averages are evaluated; a window of noisy steps.
{
  local supervised = super.algorithm.type == 'sft',
  algorithm+: if supervised then {} else { type: 'ppo', minibatches: 3, inner_epochs: 2 },
  optimizer+: if supervised then {} else { ema_decay: 0.9 },
  policy+: if supervised then {} else { train: 'lora', lora: { rank: 4 } },
  rollout+: { sde_window: { size: 2, range: [0, 3] } },
}
