import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../src/config/load.js';
import { recipeOf } from '../../../src/recipes/settings.js';
import type { TrainedSettings } from '../../../src/config/schema/run.js';

const load = async (...sets: readonly string[]): Promise<TrainedSettings> =>
  (await loadConfig({ file: 'configs/tiny_clip.jsonnet', sets, env: {} })).settings as TrainedSettings;

describe('settings of image_text_encoder', () => {
  it.each([
    [
      'environment.init.vision_config.patch_size=5',
      'environment.init.vision_config.image_size: found 16; allowed: a multiple of',
    ],
    [
      'environment.init.text_config.num_attention_heads=3',
      'environment.init.text_config.hidden_size: found 64; allowed: a multiple of',
    ],
    ['algorithm.sft.batch_size=100', 'algorithm.sft.batch_size: found 100; allowed: a multiple of'],
    ['algorithm.matched_cosine=1', 'algorithm.matched_cosine: found 1'],
  ])('%s is rejected', async (set, message) => {
    await expect(load(set)).rejects.toThrow(message);
  });

  it('say how many parameters there are, to a fifth', async () => {
    const settings = await load('environment.init.text_config.merges=200');
    const { parameters, memory } = recipeOf(settings) as never as Record<
      string,
      (s: TrainedSettings, of: () => null) => number
    >;
    const layer = 4 * 64 ** 2 + 2 * 64 * 256;
    const counted = 4 * layer + (200 + 514 + 20 + 64) * 64 + (3 * 64 + 5 + 64) * 64;
    expect(parameters(settings, () => null) / counted).toBeCloseTo(1, 1);
    expect(memory(settings, () => null)).toBeGreaterThan(16 * counted);
  });
});
