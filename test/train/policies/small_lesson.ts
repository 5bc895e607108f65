/** Two answers to a prompt, of which one is to be likelier and one less likely, and an optimizer for them. */

export const optimizer = {
  learning_rate: 0.01,
  betas: [0.9, 0.999] as [number, number],
  eps: 1e-8,
  weight_decay: 0,
  max_grad_norm: 1,
  per_device_batch_size: 2,
  schedule: 'constant' as const,
  decay_steps: null,
  min_learning_rate_ratio: 0,
  gradient_checkpointing: false,
  ema_decay: null,
};

export const group = {
  prompt: { tokens: { ids: [1, 5, 9] } },
  answers: [{ ids: Int32Array.from([4, 8, 2]) }, { ids: Int32Array.from([7, 7, 3]) }],
};
export const lesson = {
  ...group,
  targets: group.answers.map(({ ids }, i) => ({
    weights: new Float32Array(ids.length).fill(1),
    advantages: i === 0 ? 1 : -1,
    reference: null,
    old: null,
  })),
};
