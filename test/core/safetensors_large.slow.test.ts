import { expect, it } from 'vitest';
import { toStoredBytes } from '../../src/core/safetensors.js';

it('a tensor as large as the embedding of a real language model is narrowed', () => {
  // Qwen2.5-0.5B's: 151936 x 896.
  const data = new Float32Array(151_936 * 896);
  data[data.length - 1] = 1.5;
  for (const [dtype, bits] of [
    ['BF16', 0x3fc0],
    ['F16', 0x3e00],
  ] as const) {
    const out = toStoredBytes(data, dtype);
    expect(out.length).toBe(2 * data.length);
    expect(new DataView(out.buffer).getUint16(out.length - 2, true)).toBe(bits);
  }
});
