/** What the settings of ip_adapter refuse, each in one line. */
import { describe, expect, it } from 'vitest';
import { validate } from '../../../src/config/validate.js';
import { ConfigError } from '../../../src/core/errors.js';

const base = {
  run_name: 'r',
  task: 'ip_adapter',
  num_iterations: 1,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 1e-3 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4 },
  policy: {
    model_type: 'tiny',
    train: 'all',
    init: {
      num_layers: 1,
      attention_head_dim: 12,
      num_attention_heads: 2,
      patch: 4,
      text_length: 3,
      ip_adapter: { tokens: 2 },
    },
  },
  data: { train: [{ path: 'train' }], validation: [{ path: 'validation' }], tiny: {} },
  reward: { mode: 'ocr' },
};
