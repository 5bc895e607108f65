// Over lib/edit_tiny.libsonnet: from edit_response's own start on, supervised training goes on with the same few labels, in the place of rewards.
local labels = [{ path: std.extVar('APP__DATA_DIR') + '/tiny/pictured/train.jsonl' }];

{
  local instead = super.algorithm.type == 'grpo',
  algorithm: if instead then { type: 'sft', sft: { batch_size: 32 } } else super.algorithm,
  optimizer: if instead then { learning_rate: 2e-3, per_device_batch_size: 32 } else super.optimizer,
  num_iterations: if instead then 1000 else super.num_iterations,
  data+: if instead then { train: labels } else {},
  validation+: if instead then { every_n_iterations: 200 } else {},
}
