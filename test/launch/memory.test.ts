import { describe, expect, it } from 'vitest';
import type { Settings } from '../../src/config/settings.js';
import { validate } from '../../src/config/validate.js';
import { memoryBytes, memoryVerdict } from '../../src/launch/memory.js';

const architecture = {
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  rope_theta: 1e4,
  rms_norm_eps: 1e-6,
  attention_bias: false,
  tie_word_embeddings: false,
  head_dim: null,
  initializer_range: null,
  embedding_std: 0.02,
};
/** L(4d² + 3df) + 2Vd with a vocabulary of 512. */
const parameters = 2 * (4 * 64 * 64 + 3 * 64 * 128) + 2 * 512 * 64;

function settingsWith(optimizer: Record<string, unknown>, algorithm: 'grpo' | 'sft' = 'grpo'): Settings {
  const validated = validate({
    run_name: 'r',
    task: 'image_edit_tokens',
    num_iterations: 1,
    algorithm: { type: algorithm },
    optimizer: { learning_rate: 1e-4, ...optimizer },
    policy: { model: { run: 'start', config: 'start.jsonnet' }, tokenizer: { run: 'vq', config: 'vq.jsonnet' } },
    environment: { model: { run: 'vq', config: 'vq.jsonnet' } },
    reward: { mode: 'viescore', endpoint: 'embedded' },
    data: { train: [{ path: 'train.json' }], validation: [{ path: 'held_out.json' }] },
  });
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return validated.settings;
}

describe('the memory that a run needs', () => {
  it('counts the frozen reference and the moving average as a copy of the weights each', () => {
    const bytes = (settings: Settings): number => memoryBytes(settings, architecture) ?? NaN;
    const grpo = bytes(settingsWith({}));
    expect(grpo - bytes(settingsWith({}, 'sft'))).toBe(4 * parameters);
    expect(bytes(settingsWith({ ema_decay: 0.999 })) - grpo).toBe(4 * parameters);
  });

  it('is unknown for a policy of unknown architecture', () => {
    expect(memoryBytes(settingsWith({}), null)).toBeNull();
  });
});

describe('whether it fits', () => {
  const gpu = (free: number) => ({ index: 0, uuid: 'GPU-0', name: 'a GPU', memoryBytes: free + 5, usedBytes: 5 });

  it('is asked of each GPU, the fullest first', () => {
    expect(memoryVerdict(100, 2, [gpu(150), gpu(100)])).toEqual({ fits: true, freeBytes: 100, advice: null });
    const verdict = memoryVerdict(101, 2, [gpu(150), gpu(100)]);
    expect(verdict).toMatchObject({ fits: false, freeBytes: 100 });
    expect(verdict.advice).toContain('per_device_batch_size');
  });

  it('is asked of the whole machine where there are none', () => {
    const { freeBytes } = memoryVerdict(1, 1, []);
    expect(memoryVerdict(freeBytes / 4, 1, []).fits).toBe(true);
    expect(memoryVerdict(freeBytes, 8, []).fits).toBe(false);
  });
});
