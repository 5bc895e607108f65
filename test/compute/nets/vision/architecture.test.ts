import { expect, it } from 'vitest';
import { readVision } from '../../../../src/compute/nets/vision/config.js';

it('refuses a model whose windows hold no token', () => {
  const read = (window_size: number) =>
    readVision({ model_type: 'qwen2_5_vl', vision_config: { out_hidden_size: 8, window_size } }, 8, 'config.json');
  expect(read(28).windows?.window_size).toBe(28);
  expect(() => read(27)).toThrow(/vision_config\.window_size: found 27; allowed: at least .* \(28\)/);
});
