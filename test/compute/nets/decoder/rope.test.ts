import { expect, it } from 'vitest';
import { rotationOf } from '../../../../src/compute/nets/decoder/rope.js';

it('slows frequencies along a ramp that is shorter than one, as Hugging Face does', () => {
  const [head_dim, rope_theta, factor, before] = [16, 10_000, 4, 2048];
  const scaling = {
    rope_type: 'yarn',
    factor,
    beta_fast: 32,
    beta_slow: 24,
    truncate: false,
    attention_factor: 1,
    original_max_position_embeddings: before,
  } as const;
  const { frequencies } = rotationOf({ head_dim, rope_theta, rope_scaling: scaling });
  // find_correction_dim of transformers' modeling_rope_utils.
  const turning = (times: number) => (head_dim * Math.log(before / (times * 2 * Math.PI))) / (2 * Math.log(rope_theta));
  const [low, high] = [turning(32), turning(24)];
  expect(high - low).toBeLessThan(0.5);
  const expected = Array.from({ length: head_dim / 2 }, (_, i) => {
    const plain = rope_theta ** ((-2 * i) / head_dim);
    const ramp = Math.min(1, Math.max(0, (i - low) / (high - low)));
    return plain * (1 - ramp) + (plain / factor) * ramp;
  });
  frequencies.forEach((frequency, i) => expect(frequency / expected[i]).toBeCloseTo(1, 12));
});
